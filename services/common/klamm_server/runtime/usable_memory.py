"""The memory that this process may use: that of the machine, or the limit of a container (cgroup version 1 or 2)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_ROOT = Path("/")


def usable_memory_bytes(root: Path = _ROOT) -> int:
    """Returns the memory that this process may use, in bytes. `root` is where /proc and /sys are."""
    machine_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine_bytes, *_limits(root)])


def _limits(root: Path) -> Iterator[int]:
    """Yields the limits of this process's control groups and of those above them."""
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            directory, name = root / "sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            directory, name = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        # In a container, the path may be that of the host, and the container's own limit is in the directory itself.
        group = PurePosixPath(path.lstrip("/"))
        for one in (group, *group.parents):
            text = _read(directory / one / name).strip()
            if text.isdecimal():
                yield int(text)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
