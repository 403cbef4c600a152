"""The memory that this process may use: that of the machine, or the limit of a container (cgroup version 1 or 2)."""

from __future__ import annotations

import os
from pathlib import Path

from klamm_server.runtime.control_groups import ROOT, control_group_texts


def usable_memory_bytes(root: Path = ROOT) -> int:
    """Returns the memory that this process may use, in bytes. `root` is where /proc and /sys are."""
    machine_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = control_group_texts("memory", "memory.limit_in_bytes", "memory.max", root)
    return min([machine_bytes, *(int(text) for text in limits if text.isdecimal())])
