"""Tests for child processes that end before they serve."""

from __future__ import annotations

import asyncio
import pathlib
import signal

from klamm_server.child_processes import ChildProcess, ChildSpec


def _child_that_never_serves(directory: pathlib.Path, body: str) -> ChildProcess:
    (directory / "never_serves.py").write_text(f"import os, sys\n{body}\n")
    environment = {"PYTHONPATH": str(directory)}
    return ChildProcess(
        ChildSpec(name="never serves", arguments=["never_serves"], address="", tls=None, environment=environment)
    )


def test_a_process_that_is_stopped_before_it_handles_signals_has_ended_as_it_should(tmp_path: pathlib.Path) -> None:
    async def start_and_stop() -> int:
        child = _child_that_never_serves(tmp_path, "sys.stdin.read()")
        await child.start()
        return await child.stop()

    assert asyncio.run(start_and_stop()) == 0


def test_a_process_that_another_signal_ended_before_its_stop_has_the_status_of_a_shell(tmp_path: pathlib.Path) -> None:
    async def end_and_stop() -> tuple[int, int]:
        child = _child_that_never_serves(tmp_path, f"os.kill(os.getpid(), {int(signal.SIGTERM)})")
        await child.start()
        return await child.wait(), await child.stop()

    assert asyncio.run(end_and_stop()) == (-signal.SIGTERM, 128 + signal.SIGTERM)


def test_a_process_that_was_never_started_has_status_0(tmp_path: pathlib.Path) -> None:
    assert asyncio.run(_child_that_never_serves(tmp_path, "").stop()) == 0
