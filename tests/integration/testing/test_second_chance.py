"""Tests the second chance of failed tests, on runs of pytest in a separate project."""

from __future__ import annotations

import pathlib

import pytest

from tests.support.second_chance import IS_SECOND, MOST_FLAKY, STORY_FILE
from tests.support.waiting import patience

pytest_plugins = "pytester"

ROOT = pathlib.Path(__file__).resolve().parents[3]

CONFTEST = """
import pytest
from tests.support import second_chance

def pytest_configure(config):
    second_chance.install(config)

@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    second_chance.mark_final(report, call.excinfo and call.excinfo.value)
    return report
"""

FLAKY = """
import pathlib

def test_flaky_{number}(request):
    ran_before = pathlib.Path(request.config.rootpath, "ran-{number}")
    if not ran_before.exists():
        ran_before.touch()
        print("seed=7")
        raise AssertionError("the first run is too slow")
"""

PASSING = "def test_passing(): pass\n"


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Returns a project whose tests get a second chance like the tests of this project."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv(IS_SECOND, raising=False)
    monkeypatch.setenv(STORY_FILE, str(pytester.path / "story"))
    pytester.makeconftest(CONFTEST)
    pytester.makeini("[pytest]\naddopts = -p xdist --import-mode=importlib")
    write(pytester, "unit/test_passing.py", PASSING)
    return pytester


def write(project: pytest.Pytester, name: str, text: str) -> None:
    path = project.path / "tests" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def run(project: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return project.runpytest_subprocess("tests", *arguments, timeout=patience())


WORKERS = ("--numprocesses", "2", "--dist", "loadfile")


def story(project: pytest.Pytester) -> str:
    return (project.path / "story").read_text()


def test_a_run_without_failures_writes_no_story(project: pytest.Pytester) -> None:
    assert run(project).ret == 0
    assert not (project.path / "story").exists()


LAST = """
import pathlib, time

def test_last(request):
    root = pathlib.Path(request.config.rootpath)
    deadline_s = time.monotonic() + 60
    while not (root / "ran-1").exists():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    (root / "last").touch()
"""


def test_failed_tests_run_again_after_all_other_tests(project: pytest.Pytester) -> None:
    again = FLAKY.format(number=1) + "    assert pathlib.Path(request.config.rootpath, 'last').exists()\n"
    write(project, "integration/test_flaky.py", again)
    write(project, "unit/test_last.py", LAST)
    result = run(project, *WORKERS)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*2 passed, 1 flaky*"])


@pytest.mark.parametrize("workers", [(), WORKERS])
def test_a_flaky_integration_test_is_named_and_the_run_passes(
    project: pytest.Pytester, workers: tuple[str, ...]
) -> None:
    write(project, "integration/test_flaky.py", FLAKY.format(number=1))
    result = run(project, *workers)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*1 passed, 1 flaky*"])
    result.stdout.no_fnmatch_line("FAILED*")
    nodeid = "tests/integration/test_flaky.py::test_flaky_1"
    assert f": {nodeid}\n    seed=7\n" in story(project)
    assert "AssertionError: the first run is too slow" in story(project)
    assert story(project).startswith("FLAKY (passed alone) after ")
    assert story(project).endswith("failed once and then passed alone: 1, allowed: 1\n")


def test_a_run_fails_if_more_tests_are_flaky_than_allowed(project: pytest.Pytester) -> None:
    for number in range(MOST_FLAKY):
        write(project, f"integration/test_flaky_{number}.py", FLAKY.format(number=number))
    assert run(project).ret == 0
    for marker in project.path.glob("ran-*"):
        marker.unlink()
    write(project, "integration/test_one_more.py", FLAKY.format(number=MOST_FLAKY))
    result = run(project)
    assert result.ret == 1
    result.stdout.fnmatch_lines([f"*{MOST_FLAKY + 1} failed, 1 passed*"])
    assert f"passed alone: {MOST_FLAKY + 1}, allowed: {MOST_FLAKY}\n" in story(project)


def test_a_broken_test_fails_alone_too(project: pytest.Pytester) -> None:
    write(project, "integration/test_broken.py", "def test_broken(): assert 1 == 2\n")
    write(project, "integration/test_flaky.py", FLAKY.format(number=1))
    result = run(project)
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*1 failed, 1 passed, 1 flaky*"])
    assert "FAILED (alone, too) after " in story(project)
    assert "FLAKY (passed alone) after " in story(project)


def test_a_test_whose_fixture_failed_once_runs_again(project: pytest.Pytester) -> None:
    fixture = FLAKY.format(number=1).replace("def test_", "import pytest\n@pytest.fixture\ndef ") + "    yield\n"
    write(project, "integration/test_fixture.py", f"{fixture}def test_with_fixture(flaky_1): pass\n")
    result = run(project)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*1 passed, 1 flaky*"])


def test_a_unit_test_never_runs_again(project: pytest.Pytester) -> None:
    write(project, "unit/test_flaky.py", FLAKY.format(number=1))
    result = run(project)
    assert result.ret == 1
    assert story(project).startswith("FAILED after ")


@pytest.mark.parametrize("error", ["Violation('lost')", "ExceptionGroup('of tasks', [Violation('lost')])"])
def test_a_test_with_a_violation_never_runs_again(project: pytest.Pytester, error: str) -> None:
    flaky = FLAKY.format(number=1).replace('AssertionError("the first run is too slow")', error)
    write(project, "integration/test_lost.py", f"from tests.support.violation import Violation\n{flaky}")
    result = run(project, *WORKERS)
    assert result.ret == 1
    assert story(project).startswith("FINAL after ")


def test_a_test_whose_worker_dies_runs_again(project: pytest.Pytester) -> None:
    dying = FLAKY.format(number=1).replace(
        'raise AssertionError("the first run is too slow")', "__import__('os')._exit(1)"
    )
    write(project, "integration/test_dying.py", dying)
    result = run(project, *WORKERS)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*1 flaky*"])
    assert "crashed while running" in story(project)


def test_many_failures_are_reported_in_sixty_lines_and_none_runs_again(project: pytest.Pytester) -> None:
    broken = (
        "import pytest\n@pytest.mark.parametrize('number', range(30))\ndef test_broken(number): assert 0, '\\n' * 30\n"
    )
    write(project, "integration/test_broken.py", broken)
    assert run(project).ret == 1
    assert "alone" not in story(project)
    assert len(story(project).splitlines()) <= 60
