"""A file system that tests can fill: a small tmpfs. Needs the right to mount."""

from __future__ import annotations

import contextlib
import os
import pathlib
import subprocess
from collections.abc import Iterator

import pytest

from tests.support.waiting import patience

_FILLER = "filler"


@contextlib.contextmanager
def small_disk(path: pathlib.Path, size_mib: int) -> Iterator[pathlib.Path]:
    """Mounts a tmpfs of `size_mib` at `path`, which it makes, and yields `path`. Skips the test if it may not mount."""
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "tmpfs", str(path)]
    try:
        mounted = subprocess.run(command, capture_output=True, text=True, timeout=patience(), check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if mounted.returncode:
        pytest.skip(f"cannot mount a tmpfs: {mounted.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True, timeout=patience())


def fill(disk: pathlib.Path, *, left_bytes: int) -> None:
    """Writes a file that leaves only `left_bytes` of the disk, rounded down to its blocks."""
    space = os.statvfs(disk)
    with (disk / _FILLER).open("xb") as filler:
        os.posix_fallocate(filler.fileno(), 0, (space.f_bavail - left_bytes // space.f_bsize) * space.f_bsize)


def make_space(disk: pathlib.Path) -> None:
    """Removes the file of `fill`."""
    (disk / _FILLER).unlink()
