"""Keeps the file of an index in step with the index in memory: adds entries, or truncates the file."""

from __future__ import annotations

import os
from typing import Protocol

from klamm_broker.log.segment.segment_files import SegmentFiles


class Index(Protocol):
    """The common interface of the three indexes."""

    written_count: int
    """The number of entries that are in the file."""

    def __len__(self) -> int: ...

    def unwritten(self) -> bytes:
        """Returns the encoded entries that are not in the file yet."""


def write_entries(files: SegmentFiles, suffix: str, index: Index, entry_size_bytes: int) -> None:
    """Writes the missing entries to the file, without a sync. It may be repeated after an OSError."""
    data = index.unwritten()
    fd = files.disk.open(files.path(suffix), os.O_WRONLY | os.O_CREAT)
    try:
        files.disk.pwrite_all(fd, data, index.written_count * entry_size_bytes)
    finally:
        files.disk.close(fd)
    index.written_count = len(index)


def trim_entries(files: SegmentFiles, suffix: str, index: Index, entry_size_bytes: int) -> None:
    """Truncates the file, if it exists, after the written entries of the index."""
    path, size_bytes = files.path(suffix), index.written_count * entry_size_bytes
    if not files.disk.exists(path) or files.disk.size(path) == size_bytes:
        return
    fd = files.disk.open(path, os.O_WRONLY)
    try:
        files.disk.ftruncate(fd, size_bytes)
    finally:
        files.disk.close(fd)
