"""The cores that this process may use: those of its CPU affinity, or the quota of a container (cgroup version 1 or
2)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from klamm_server.runtime.control_groups import ROOT, control_group_texts


def usable_cores(root: Path = ROOT) -> int:
    """Returns the number of whole cores that this process may use, at least 1. `root` is where /proc and /sys are."""
    quotas = control_group_texts("cpu", "cpu.cfs_quota_us cpu.cfs_period_us", "cpu.max", root)
    return max(1, min([len(os.sched_getaffinity(0)), *_cores(quotas)]))


def _cores(quotas: Iterator[str]) -> Iterator[int]:
    """Yields the whole cores of each quota, which is the CPU time and the period in microseconds. Skips `max` and -1,
    which are no limit."""
    for text in quotas:
        match text.split():
            case [quota_us, period_us] if quota_us.isdecimal() and period_us.isdecimal() and int(period_us):
                yield int(quota_us) // int(period_us)
