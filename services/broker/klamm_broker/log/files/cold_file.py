"""Reads a sealed `.log` file from the disk itself, and leaves the page cache as it was.

The page cache may hide damage on the disk until the pages are dropped. So the reader drops the pages of a block before
it reads it. This drops only clean pages, and sealed segments below the recovery point have no others. Scrubbing reads
data that no client needs, and must not evict data that clients use. So the pages are dropped again after the read,
unless the block was cached before. Readahead is switched off, because its pages would be dropped unread.

Worker threads only.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from klamm_server.runtime.disk import Disk

BLOCK_BYTES = 1024 * 1024
"""The bytes of one read, a multiple of every page size."""
_CAN_DROP = hasattr(os, "posix_fadvise")
_CAN_PROBE = hasattr(os, "RWF_NOWAIT")


class ColdFile:
    """A file that is open from the constructor to `close`. The constructor and `read` raise OSError. `pace` is called
    with the bytes of each block."""

    def __init__(self, disk: Disk, path: str, *, pace: Callable[[int], None]) -> None:
        self._disk = disk
        self._pace = pace
        self._fd = disk.open(path, os.O_RDONLY)
        self._block = memoryview(b"")
        self._block_position = 0
        if _CAN_DROP:
            disk.fadvise(self._fd, 0, 0, os.POSIX_FADV_RANDOM)

    def close(self) -> None:
        self._disk.close(self._fd)

    def read(self, position: int, size_bytes: int) -> memoryview:
        """Returns the bytes of the range, or fewer at the end of the file."""
        end = position + size_bytes
        if self._block_position <= position and end <= self._block_position + len(self._block):
            at = position - self._block_position
            return self._block[at : at + size_bytes]
        parts: list[memoryview] = []
        while position < end:
            start = position - position % BLOCK_BYTES
            if self._block_position != start or not self._block:
                self._load(start)
            part = self._block[position - start : end - start]
            parts.append(part)
            position += len(part)
            if len(self._block) < BLOCK_BYTES:
                break
        return parts[0] if len(parts) == 1 else memoryview(b"".join(parts))

    def _load(self, start: int) -> None:
        stays = self._is_cached(start)
        self._drop(start)
        self._block = memoryview(self._disk.read_all(self._fd, BLOCK_BYTES, start))
        self._block_position = start
        if not stays:
            self._drop(start)
        self._pace(len(self._block))

    def _is_cached(self, start: int) -> bool:
        """Returns True if the block's first byte is in memory, because readers may then use the block."""
        if not _CAN_PROBE:
            return True
        try:
            return bool(self._disk.preadv(self._fd, [bytearray(1)], start, os.RWF_NOWAIT))
        except OSError:
            return False  # the byte is not in memory, or the file system cannot tell

    def _drop(self, start: int) -> None:
        if _CAN_DROP:
            self._disk.fadvise(self._fd, start, BLOCK_BYTES, os.POSIX_FADV_DONTNEED)


def read_cold(disk: Disk, path: str) -> bytes:
    """Returns the content of a small file, read from the disk itself. Raises OSError."""
    fd = disk.open(path, os.O_RDONLY)
    try:
        if _CAN_DROP:
            disk.fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        return disk.read_all(fd, disk.size(path))
    finally:
        disk.close(fd)
