"""A program of another language or environment, as a process that tests start, kill and start again."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.support.waiting import patience

TAIL_CHARACTERS = 5_000


class ForeignProgram:
    """Runs of a program, one after the other. All of them write to the same log."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, command: Sequence[str]) -> None:
        with self._log.open("a") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)

    def check(self) -> None:
        """Raises AssertionError if the program has ended by itself."""
        assert self._process is not None
        assert self._process.poll() is None, self.tail()

    def kill(self) -> None:
        """Kills the program with SIGKILL, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(patience())

    def close(self) -> None:
        """Kills the program, for `contextlib.closing`."""
        self.kill()

    def lines(self) -> list[str]:
        """Returns the lines of the log."""
        return self._log.read_text().splitlines()

    def tail(self) -> str:
        """Returns the end of the log."""
        return self._log.read_text()[-TAIL_CHARACTERS:]
