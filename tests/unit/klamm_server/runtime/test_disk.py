"""Tests writes through the disk's port."""

from __future__ import annotations

from klamm_server.runtime.disk import Disk


def test_more_buffers_than_one_writev_accepts_are_all_written(tmp_path) -> None:
    disk = Disk()
    fd = disk.open(str(tmp_path / "file"), 0o102 | 0o2000)
    parts = [bytes([n % 251]) * (n % 3) for n in range(5_000)]
    disk.writev_all(fd, parts, sum(map(len, parts)))
    disk.close(fd)
    assert (tmp_path / "file").read_bytes() == b"".join(parts)
