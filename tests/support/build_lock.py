"""Builds below `build/` that test processes share: one process builds, and the others wait for it."""

from __future__ import annotations

import contextlib
import fcntl
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path


@contextlib.contextmanager
def build_lock(folder: Path) -> Iterator[None]:
    """Makes the folder and holds its lock, for which other processes wait."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def run_build(
    command: Sequence[str],
    *,
    timeout_s: float,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Runs a step of a build. Raises AssertionError with the step's output if it fails."""
    run = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False
    )
    assert run.returncode == 0, f"{' '.join(command)} failed:\n{run.stdout}{run.stderr}"
