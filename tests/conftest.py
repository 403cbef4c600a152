"""Comes before every test: `klamm` before gRPC, which reads what `klamm` sets when it is imported."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

import klamm as klamm
from klamm_server.runtime import garbage
from tests.support import leftovers, run_directory, second_chance, seeds, spread

# How long an example takes says more about the machine than about the code. Examples are the same in every run, as the
# seeds of `support/seeds.py` are.
settings.register_profile(
    "klamm",
    max_examples=seeds.examples(100),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
    derandomize="TEST_SEED" not in os.environ,
)
settings.load_profile("klamm")
if "TEST_SEED" not in os.environ:
    # Hypothesis draws constants that it finds in the modules that the process has imported by then: which those are
    # depends on the tests that it happened to run before.
    providers._get_local_constants = lambda: providers._local_constants

_LONGEST_FIRST = ("chaos", "clients", "compose", "integration", "sim", "world", "scenarios", "unit")
"""The order of the folders of tests. Workers share the files, so the files that take minutes must begin first.

The tests of Spark come before all others, because one worker runs them all."""

_HAS_PASSED = pytest.StashKey[bool]()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Sets the seed of the tests' order, unless the command line names one, and installs what is for the whole run."""
    if config.getoption("randomly_seed", None) == "default":
        config.option.randomly_seed = seeds.run_seed()
    run_directory.install(config)
    second_chance.install(config)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Keeps the garbage collector from the modules and tests that a process loads. They stay until the process ends,
    and the collector would visit millions of objects again and again."""
    with garbage.loading():
        return (yield)


@pytest.fixture(autouse=True)
def _leaves_no_task(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test that passed, and left a task to `asyncio.run` to cancel."""
    with leftovers.left_tasks() as left:
        yield
    if request.node.stash.get(_HAS_PASSED, False):
        leftovers.refuse(left)


@pytest.fixture(autouse=True, scope="module")
def _leaves_nothing(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Fails the last test of a file whose tests all passed, and left a thread, a process or a mount behind.

    A file's tests may share a cluster, and start its processes again."""
    failed_before = request.session.testsfailed
    directory = tmp_path_factory.getbasetemp()
    before = leftovers.machine(directory)
    yield
    if request.session.testsfailed == failed_before:
        leftovers.refuse(leftovers.left_since(before, directory))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Notes in the report whether its error is final, and in the test whether it passed."""
    report = yield
    if report.when == "call":
        item.stash[_HAS_PASSED] = report.passed
    second_chance.mark_final(report, call.excinfo and call.excinfo.value)
    return report


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Returns the scheduling of a run with several workers, if it spreads tests by file."""
    return spread.FileScheduling(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sorts the tests by folder. They stay in random order within each folder."""

    def folder(item: pytest.Item) -> tuple[bool, int]:
        path = item.path.relative_to(config.rootpath).as_posix()
        return not path.startswith(spread.SPARK), _LONGEST_FIRST.index(path.split("/")[1])

    items.sort(key=folder)
