"""The files of this process's control groups (cgroup version 1 or 2), which limit the resources of a container."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

ROOT: Final = Path("/")


def control_group_texts(controller: str, v1_file: str, v2_file: str, root: Path) -> Iterator[str]:
    """Yields the text of a controller's file in this process's control groups and in those above them. `root` is where
    /proc and /sys are. A file of version 1 may have several names, separated by spaces, and its texts are joined."""
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            directory, names = root / "sys/fs/cgroup", v2_file
        elif controller in controllers.split(","):
            directory, names = root / "sys/fs/cgroup" / controller, v1_file
        else:
            continue
        # In a container, the path may be that of the host, and the container's own limit is in the directory itself.
        group = PurePosixPath(path.lstrip("/"))
        for level in (group, *group.parents):
            yield " ".join(_read(directory / level / name).strip() for name in names.split())


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
