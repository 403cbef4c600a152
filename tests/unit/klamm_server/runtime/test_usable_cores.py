"""Tests that the cores of a container are found in both versions of control groups."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from klamm_server.runtime.usable_cores import usable_cores

AFFINITY = len(os.sched_getaffinity(0))


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{text}\n")


@pytest.mark.parametrize(
    "files",
    [
        {"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "100000 100000"},
        {"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "199999 100000"},
        {"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "50000 100000"},
        {"proc/self/cgroup": "0::/a/b", "sys/fs/cgroup/a/cpu.max": "100000 100000"},
        {
            "proc/self/cgroup": "3:cpu,cpuacct:/x",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "100000",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
        },
    ],
    ids=["one", "less than two", "half", "of the group above", "version 1"],
)
def test_the_quota_of_a_container_counts_in_whole_cores(tmp_path: Path, files: dict[str, str]) -> None:
    write(tmp_path, files)
    assert usable_cores(tmp_path) == 1


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "max 100000"},
        {"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "99900000 100000"},
        {
            "proc/self/cgroup": "3:cpu,cpuacct:/x",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
        },
    ],
    ids=["no group", "no limit", "a larger limit", "no limit in version 1"],
)
def test_without_a_smaller_quota_the_affinity_counts(tmp_path: Path, files: dict[str, str]) -> None:
    write(tmp_path, files)
    assert usable_cores(tmp_path) == AFFINITY
