"""The files of one segment: their names, the open log, and its size.

| file | holds | there |
|---|---|---|
| `N.log` | whole batches; N is the base offset, 20 digits | always |
| `N.index`, `N.timeindex` | `offset_index.py`, `time_index.py` | always, unless the disk was full |
| `N.txnindex` | `transaction_index.py` | if it has entries |
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from klamm.records.header import BatchHeader
from klamm_broker.log.segment.batch_scan import scan_headers
from klamm_server.runtime.disk import Disk

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)

CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
DELETED_SUFFIX = ".deleted"


class FileSlice(NamedTuple):
    """A slice of a `.log` file with whole batches: `size_bytes` bytes from `position`."""

    position: int
    size_bytes: int


def segment_path(directory: str, base_offset: int, suffix: str) -> str:
    return f"{directory}/{base_offset:020d}{suffix}"


class SegmentFiles:
    """The files of one segment. All calls may raise OSError."""

    __slots__ = ("base_offset", "directory", "disk", "fd", "has_transaction_index", "size_bytes", "suffix")

    def __init__(self, disk: Disk, directory: str, base_offset: int, suffix: str) -> None:
        self.disk = disk
        self.directory = directory
        self.base_offset = base_offset
        self.suffix = suffix
        """The suffix of all file names while the segment is not part of the log yet (`segment_swap.py`)."""
        self.fd = -1
        """The descriptor of the open log, or -1. It is valid until the caller next awaits."""
        self.size_bytes = 0
        """The size of the log file. It is known once the segment is attached or open."""
        self.has_transaction_index = False

    # Names

    def path(self, suffix: str = LOG_SUFFIX) -> str:
        return segment_path(self.directory, self.base_offset, suffix + self.suffix)

    @property
    def paths(self) -> list[str]:
        """The paths of all files, the log last. On load, an index without a log is removed, but a log without an index
        is a live segment."""
        return [*self.index_paths, self.path(LOG_SUFFIX)]

    @property
    def index_paths(self) -> list[str]:
        suffixes = [INDEX_SUFFIX, TIME_INDEX_SUFFIX]
        if self.has_transaction_index:
            suffixes.append(TRANSACTION_INDEX_SUFFIX)
        return [self.path(suffix) for suffix in suffixes]

    def rename_deleted(self) -> list[str]:
        """Adds the suffix `.deleted` to all files. Returns their new paths."""
        renamed = []
        for path in self.paths:
            # If the disk was full, an index may not exist.
            if path == self.path() or self.disk.exists(path):
                self.disk.replace(path, path + DELETED_SUFFIX)
                renamed.append(path + DELETED_SUFFIX)
        return renamed

    def remove(self) -> None:
        """Removes all files. A missing file is no error."""
        self.disk.remove(self.paths)

    # Opening and closing

    @property
    def is_open(self) -> bool:
        return self.fd >= 0

    def create(self) -> None:
        """Creates the empty log and two empty indexes, and opens the log. After an OSError, none of the files is
        left."""
        try:
            self.fd = self.disk.open(self.path(), _OPEN_LOG | os.O_CREAT | os.O_TRUNC)
            for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
                self.disk.close(self.disk.open(self.path(suffix), _CREATE_EMPTY))
        except OSError:
            self.close()
            self.remove()
            raise

    def open(self) -> None:
        """Opens the log for reading and appending."""
        self.fd = self.disk.open(self.path(), _OPEN_LOG)
        self.measure()

    def measure(self) -> None:
        """Reads the size of the log file."""
        self.size_bytes = self.disk.size(self.path())

    def close(self) -> None:
        """Closes the descriptor, if there is one."""
        if self.fd >= 0:
            self.disk.close(self.fd)
            self.fd = -1

    def duplicate_fd(self) -> int:
        """Returns a descriptor of the log that the caller owns. A disk thread may read, sync and close it, even if the
        segment is closed or deleted at the same time."""
        return self.disk.dup(self.fd) if self.is_open else self.disk.open(self.path(), os.O_RDONLY)

    # The log

    def read(self, part: FileSlice) -> bytes:
        """Returns the bytes of a slice that `SegmentReader.locate` returned."""
        return self.disk.read_all(self.fd, part.size_bytes, part.position)

    def headers(self, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """Yields the position and header of each batch from a batch boundary on."""
        return scan_headers(self.disk, self.fd, position, self.size_bytes)

    def truncate_to(self, position: int) -> int:
        """Truncates the log at a batch boundary. Returns the number of removed bytes."""
        cut_bytes = self.size_bytes - position
        self.disk.ftruncate(self.fd, position)
        self.size_bytes = position
        return cut_bytes


_OPEN_LOG = os.O_RDWR | os.O_APPEND
_CREATE_EMPTY = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
