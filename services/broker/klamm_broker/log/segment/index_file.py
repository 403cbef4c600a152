"""Keeping the file of an index as long as the index in memory says: entries are added to it, or cut off."""

from __future__ import annotations

import os
from typing import Protocol

from klamm_broker.log.segment.segment_files import SegmentFiles


class Index(Protocol):
    """What the three indexes have in common."""

    written_count: int
    """How many entries the file already has."""

    def __len__(self) -> int: ...

    def unwritten(self) -> bytes:
        """The encoded entries that are not in the file yet."""


def write_entries(files: SegmentFiles, suffix: str, index: Index, entry_size_bytes: int) -> None:
    """Brings the file up to the index; not synced. Safe to repeat after it raised OSError."""
    data = index.unwritten()
    fd = files.disk.open(files.path(suffix), os.O_WRONLY | os.O_CREAT)
    try:
        files.disk.pwrite_all(fd, data, index.written_count * entry_size_bytes)
    finally:
        files.disk.close(fd)
    index.written_count = len(index)


def trim_entries(files: SegmentFiles, suffix: str, index: Index, entry_size_bytes: int) -> None:
    """Cuts the file, if there is one, where the entries end that it has of the index."""
    path, size_bytes = files.path(suffix), index.written_count * entry_size_bytes
    if not files.disk.exists(path) or files.disk.size(path) == size_bytes:
        return
    fd = files.disk.open(path, os.O_WRONLY)
    try:
        files.disk.ftruncate(fd, size_bytes)
    finally:
        files.disk.close(fd)
