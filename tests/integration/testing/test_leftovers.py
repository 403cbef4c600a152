"""Tests the check that finds leftover tasks, threads and processes of a test, and the temporary folder of a run."""

from __future__ import annotations

import asyncio
import pathlib
import subprocess
import sys
import threading

import pytest

from tests.support.leftovers import left_since, left_tasks, machine
from tests.support.run_directory import PREFIX, environment
from tests.support.waiting import wait_until

pytest_plugins = "pytester"

ROOT = pathlib.Path(__file__).resolve().parents[3]

CONFTEST = """
from tests.support import run_directory

def pytest_configure(config):
    run_directory.install(config)
"""

LEAVES_A_PROCESS = """
import subprocess, sys

def test_leaving():
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
"""


@pytest.fixture(autouse=True)
def _leaves_no_task() -> None:
    """Replaces the fixture that fails tests with leftover tasks, because a test here leaves one on purpose."""


def test_a_thread_and_a_process_are_reported_as_leftovers_until_they_end(tmp_path: pathlib.Path) -> None:
    before = machine(tmp_path)
    go_on = threading.Event()
    thread = threading.Thread(target=go_on.wait, name="left")
    thread.start()
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        left = left_since(before, tmp_path, timeout_s=0)
    finally:
        go_on.set()
        thread.join()
        process.communicate()
    assert sorted(text.split(":")[0] for text in left) == [f"the process {process.pid}", "the thread 'left'"]
    assert not left_since(before, tmp_path)


def test_sparks_jvm_and_its_connection_threads_are_not_reported_as_leftovers(tmp_path: pathlib.Path) -> None:
    """PySpark keeps them until the process ends. The thread is of a class of Py4J, and runs no function."""

    class FinalizerWorker(threading.Thread):
        __module__ = "py4j.clientserver"

        def run(self) -> None:
            go_on.wait()

    before = machine(tmp_path)
    go_on = threading.Event()
    thread = FinalizerWorker()
    thread.start()
    command = ["java", "-c", "input()", "pyspark-shell"]
    process = subprocess.Popen(command, executable=sys.executable, stdin=subprocess.PIPE)
    try:
        assert not left_since(before, tmp_path, timeout_s=0)
    finally:
        go_on.set()
        thread.join()
        process.communicate(b"\n")


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Returns a project with a temporary folder for each run, inside the test's folder."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("TMPDIR", str(pytester.path))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makeconftest(CONFTEST)
    return pytester


def folders(project: pytest.Pytester) -> list[pathlib.Path]:
    return list(project.path.glob(f"{PREFIX}*"))


def test_the_folder_of_a_run_is_gone_when_it_has_passed(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import os, tempfile

        def test_writing():
            with open(tempfile.mkstemp()[1], "w") as file:
                file.write("left")
            assert tempfile.gettempdir() == os.environ["TMPDIR"] == os.environ["SPARK_LOCAL_DIRS"]
        """
    )
    assert project.runpytest_subprocess().ret == 0
    assert not folders(project)


def test_the_folder_of_a_run_that_failed_is_kept_and_named(project: pytest.Pytester) -> None:
    project.makepyfile("import tempfile\ndef test_failing(): assert not tempfile.mkstemp(prefix='seen')")
    result = project.runpytest_subprocess()
    assert result.ret == 1
    (folder,) = folders(project)
    result.stdout.fnmatch_lines([f"the files of this run are in {folder}"])
    assert list(folder.glob("seen*"))


def test_a_run_that_leaves_a_process_fails_and_ends_it(project: pytest.Pytester) -> None:
    project.makeconftest(f"{CONFTEST}run_directory.patience = lambda: 0\n")
    project.makepyfile(LEAVES_A_PROCESS)
    result = project.runpytest_subprocess("-W", "ignore::ResourceWarning")
    assert result.ret == 1
    (line,) = [line for line in result.outlines if line.startswith("the tests left the process ")]
    number = line.removeprefix("the tests left the process ").partition(":")[0]
    wait_until(lambda: has_ended(pathlib.Path("/proc", number)), "the process runs on")


def test_the_environment_of_a_process_that_has_just_been_started_is_found() -> None:
    """The kernel shows it a moment after `Popen` has returned, so a run overlooked such a process."""
    for number in range(100):
        command = ["sh", "-c", "read line"]
        with subprocess.Popen(command, env={"NUMBER": str(number)}, stdin=subprocess.PIPE) as process:
            assert f"NUMBER={number}".encode() in environment(pathlib.Path("/proc", str(process.pid)))
            process.kill()


def has_ended(process: pathlib.Path) -> bool:
    """Returns True if the process is gone, or is a zombie."""
    try:
        return not (process / "cmdline").read_bytes()
    except OSError:
        return True


def test_a_task_that_asyncio_run_had_to_cancel_is_reported_as_a_leftover() -> None:
    async def leave(task: bool) -> None:
        waiting = asyncio.create_task(asyncio.Event().wait())
        await asyncio.sleep(0)
        if not task:
            waiting.cancel()
            await asyncio.wait([waiting])

    with left_tasks() as left:
        asyncio.run(leave(task=False))
        assert not left
        asyncio.run(leave(task=True))
        assert left == ["the task Event.wait"]
