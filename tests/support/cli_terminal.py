"""Runs `klamm ...` as a process of its own, on a terminal if a test wants one."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from tests.support.cli_runner import KlammCommand
from tests.support.waiting import patience


@contextlib.contextmanager
def start(klamm: KlammCommand, *arguments: str, columns: int = 80, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Starts the command, and kills it at the end if it still runs."""
    environment = {**os.environ, "KLAMM_BOOTSTRAP": klamm.bootstrap, "COLUMNS": str(columns)}
    command = [sys.executable, "-m", "klamm", *arguments]
    with subprocess.Popen(
        command, env=environment, **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def read_terminal(descriptor: int, until: bytes) -> str:
    """Reads a terminal, colours included, until the text has `until` or the writer has closed its end."""
    seen = b""
    deadline = time.monotonic() + patience()
    while until not in seen:
        assert select.select([descriptor], [], [], deadline - time.monotonic())[0], f"{until!r} not in {seen!r}"
        try:
            chunk = os.read(descriptor, 65_536)
        except OSError:  # Linux reports a closed other end as this error
            chunk = b""
        if not chunk:
            break
        seen += chunk
    return seen.decode()


def on_terminal(klamm: KlammCommand, *arguments: str, status: int = 0, columns: int = 80, **options: Any) -> str:
    """Runs a command whose output is a terminal. Returns the output without colours."""
    leader, follower = pty.openpty()
    with start(klamm, *arguments, columns=columns, **{"stdout": follower, "stderr": follower, **options}) as process:
        os.close(follower)
        text = read_terminal(leader, b"\0")
        assert process.wait(patience()) == status, text
    os.close(leader)
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)
