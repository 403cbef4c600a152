"""A second chance for tests that depend on real time, after all other tests have ended.

A test of real processes can fail because the machine was too busy. So each failed test of the folders in `REAL_TIME`
runs once more, in a process of its own, with nothing beside it. If it passes then, it is flaky: the run passes with at
most `MOST_FLAKY` flaky tests, and names them in its last lines, each with the reason of its first failure.

Two kinds of tests get no second chance: tests in other folders, and tests that raised `Violation` or left something
behind. If more than `MOST_AGAIN` tests failed, the code is broken, and no test runs again.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Generator, Iterable
from typing import Any, Final, NamedTuple

import pytest

from tests.support.leftovers import LeftoverError
from tests.support.violation import is_violation

REAL_TIME: Final = ("tests/integration/", "tests/compose/", "tests/clients/")
"""The folders whose tests depend on real time, and may run again. Tests in tests/chaos may not, because they find
violations."""

MOST_FLAKY: Final = 1
"""The number of flaky tests with which a run still passes."""

MOST_AGAIN: Final = 12
"""The number of failed tests up to which they run again."""

STORY_FILE: Final = "TEST_STORY"
"""The environment variable with the file to which the plugin appends the last lines of a run, if it is set.

Its name does not begin with `KLAMM_`: a server refuses such a variable that it does not know."""

IS_SECOND: Final = "TEST_SECOND_CHANCE"
"""The environment variable that is set in a test's second run."""

_AGAIN_TIMEOUT_S: Final = 1_200
_STORY_LINES: Final = 50
"""The number of lines that the reasons of all failures take together."""

_REASON_LINES: Final = 15
"""The number of lines that the reason of one failure takes."""

_MOST_TOLD: Final = 16
"""The largest number of failures whose reasons are printed."""


class Failure(NamedTuple):
    """The first failure of a test."""

    nodeid: str
    reason: str
    is_final: bool
    at_s: float
    """The second of the run at which the test failed."""
    load: float
    """The machine's load average of the last minute at that time."""
    seeds: tuple[str, ...]
    """The lines of the test's output that name its seeds."""

    @property
    def may_run_again(self) -> bool:
        """True if the test depends on real time, and its error is not final."""
        return self.nodeid.startswith(REAL_TIME) and not self.is_final


def install(config: pytest.Config) -> None:
    """Adds the plugin to the process that collects the results. With pytest-xdist, this process starts the workers."""
    if not hasattr(config, "workerinput") and IS_SECOND not in os.environ and not config.option.collectonly:
        config.pluginmanager.register(SecondChance(config))


def mark_final(report: pytest.TestReport, error: BaseException | None) -> None:
    """Notes in a test's report whether the error is one after which the test does not run again."""
    report.is_final = isinstance(error, LeftoverError) or is_violation(error)  # type: ignore[attr-defined]


class SecondChance:
    """The pytest plugin that runs failed tests again."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._begin_s = time.monotonic()
        self._failures: dict[str, Failure] = {}
        """The first failure of each failed test, by its node id."""
        self._passed_again: dict[str, bool] = {}
        """The outcome of each test that ran again, by its node id. True if it passed."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remembers the first failure of each test."""
        if report.failed and report.nodeid not in self._failures:
            self._failures[report.nodeid] = Failure(
                report.nodeid,
                _reason(report),
                getattr(report, "is_final", False),
                time.monotonic() - self._begin_s,
                os.getloadavg()[0],
                _seeds(report.capstdout),
            )

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, Any, Any]:
        """Runs failed tests again once all others have ended, and no longer counts the flaky ones as failed."""
        result = yield
        if len(self._failures) <= MOST_AGAIN:
            for failure in self._failures.values():
                if failure.may_run_again:
                    self._passed_again[failure.nodeid] = self._passes_again(failure.nodeid)
        if len(self._flaky()) <= MOST_FLAKY:
            self._acquit(session)
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: Any) -> Generator[None, None, None]:
        """Prints each failure after pytest's own reports of failures."""
        yield
        story = self._story()
        for line in story:
            terminalreporter.write_line(line)
        if story and (path := os.environ.get(STORY_FILE)):
            with open(path, "a", encoding="utf-8") as file:
                file.writelines(f"{line}\n" for line in story)

    def _flaky(self) -> list[str]:
        return [nodeid for nodeid, passed in self._passed_again.items() if passed]

    def _passes_again(self, nodeid: str) -> bool:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", nodeid]
        try:
            ended = subprocess.run(
                command,
                cwd=self._config.rootpath,
                env={**os.environ, IS_SECOND: "1"},
                capture_output=True,
                text=True,
                timeout=_AGAIN_TIMEOUT_S,
            )
        except subprocess.TimeoutExpired:
            return False
        return ended.returncode == 0 and " passed" in ended.stdout

    def _acquit(self, session: pytest.Session) -> None:
        """Moves the reports of flaky tests from the failed ones to a category of their own."""
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        assert reporter is not None
        flaky = self._flaky()
        for category in ("failed", "error"):
            reports = reporter.stats.pop(category, [])
            acquitted = [report for report in reports if report.nodeid in flaky]
            kept = [report for report in reports if report.nodeid not in flaky]
            session.testsfailed -= len(acquitted)
            for name, those in (("flaky", acquitted), (category, kept)):
                if those:
                    reporter._add_stats(name, those)

    def _story(self) -> list[str]:
        """Returns the last lines of the run, at most 60. Returns none if nothing failed."""
        told = list(self._failures.values())[:_MOST_TOLD]
        most = min(_REASON_LINES, _STORY_LINES // max(1, len(told)) - 2)
        lines = [line for failure in told for line in self._failure_lines(failure, most)]
        if more := len(self._failures) - len(told):
            lines.append(f"{more} more tests failed")
        if flaky := self._flaky():
            lines.append(f"flaky tests, which failed once and then passed alone: {len(flaky)}, allowed: {MOST_FLAKY}")
        return lines

    def _failure_lines(self, failure: Failure, most: int) -> Iterable[str]:
        yield f"{self._verdict(failure)} after {failure.at_s:.0f} s, load {failure.load:.1f}: {failure.nodeid}"
        yield from (f"    {line}" for line in failure.seeds)
        yield from (f"    {line}" for line in failure.reason.splitlines()[:most])
        yield f"    again: .venv/bin/python -m pytest '{failure.nodeid}'"

    def _verdict(self, failure: Failure) -> str:
        match self._passed_again.get(failure.nodeid):
            case True:
                return "FLAKY (passed alone)"
            case False:
                return "FAILED (alone, too)"
        return "FINAL" if failure.is_final else "FAILED"


def _reason(report: pytest.TestReport) -> str:
    """Returns the message of the error with the place where it was raised, or pytest's own text if there is no
    error."""
    crash = getattr(report.longrepr, "reprcrash", None)
    return report.longreprtext if crash is None else f"{crash.path}:{crash.lineno}: {crash.message}"


def _seeds(output: str) -> tuple[str, ...]:
    return tuple([line.strip() for line in output.splitlines() if "seed" in line.lower()][:2])
