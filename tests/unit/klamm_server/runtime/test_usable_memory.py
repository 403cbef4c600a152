"""Tests that the memory of a container is found in both versions of control groups."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from klamm_server.runtime.usable_memory import usable_memory_bytes

MACHINE_BYTES = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
LIMIT_BYTES = 384 * 1024**2


@pytest.mark.parametrize(
    ("cgroup", "file"),
    [
        ("0::/", "sys/fs/cgroup/memory.max"),
        ("0::/system.slice/klamm.service", "sys/fs/cgroup/system.slice/klamm.service/memory.max"),
        ("0::/system.slice/klamm.service", "sys/fs/cgroup/system.slice/memory.max"),
        ("3:cpu,cpuacct:/x\n2:memory:/docker/0123", "sys/fs/cgroup/memory/memory.limit_in_bytes"),
        ("2:memory:/docker/0123", "sys/fs/cgroup/memory/docker/0123/memory.limit_in_bytes"),
    ],
)
def test_the_limit_of_a_container_counts(tmp_path: Path, cgroup: str, file: str):
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(cgroup + "\n")
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(f"{LIMIT_BYTES}\n")
    assert usable_memory_bytes(tmp_path) == LIMIT_BYTES


def test_without_a_limit_the_machine_counts(tmp_path: Path):
    assert usable_memory_bytes(tmp_path) == MACHINE_BYTES
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/\n")
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/memory.max").write_text("max\n")
    assert usable_memory_bytes(tmp_path) == MACHINE_BYTES


def test_this_process_has_some_memory():
    assert 0 < usable_memory_bytes() <= MACHINE_BYTES
