"""Walks through the batches of a `.log` file with positioned reads. It reads only headers, or whole checked batches.

A walk goes from a batch boundary to `end`. It raises CorruptBatchError at the first byte that is not a batch. The
batches that it yielded before are good. Memory is bounded by one chunk or, for checked batches, one batch.
"""

from __future__ import annotations

from collections.abc import Iterator

from klamm.records.errors import TruncatedBatchError
from klamm.records.header import HEADER_SIZE_BYTES, BatchHeader, read_header, validate_batch
from klamm_server.runtime.disk import Disk

HEADER_CHUNK_BYTES = 4096
"""The size of one read of headers. It is one index interval, which is enough for the usual scan from an index entry,
and cheap for larger batches."""
CHECKED_CHUNK_BYTES = 1024 * 1024


def scan_headers(disk: Disk, fd: int, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Yields the position and header of each batch in `[position, end)`. Does not read or check the records."""
    chunk, chunk_position = b"", position
    while position < end:
        at = position - chunk_position
        if at + HEADER_SIZE_BYTES > len(chunk):
            chunk = disk.pread(fd, min(HEADER_CHUNK_BYTES, end - position), position)
            chunk_position, at = position, 0
        header = read_header(chunk, at)
        next_position = position + header.size_bytes
        if next_position > end:
            raise _torn(position, header, end)
        yield position, header
        position = next_position


def scan_checked(disk: Disk, fd: int, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Yields batch headers like `scan_headers`, but reads each batch whole and checks its checksum and counts."""
    for at, _, batch in scan_batches(disk, fd, position, end, CHECKED_CHUNK_BYTES):
        yield at, validate_batch(batch, allow_gaps=True)


def scan_batches(
    disk: Disk, fd: int, position: int, end: int, chunk_bytes: int
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Yields the position, header and bytes of each batch in `[position, end)`, unchecked. Reads `chunk_bytes` at a
    time."""
    chunk, chunk_position = memoryview(b""), position
    while position < end:
        at = position - chunk_position
        if at + HEADER_SIZE_BYTES > len(chunk):
            chunk = memoryview(disk.read_all(fd, min(chunk_bytes, end - position), position))
            chunk_position, at = position, 0
        header = read_header(chunk, at)
        next_position = position + header.size_bytes
        if next_position > end:
            raise _torn(position, header, end)
        if at + header.size_bytes > len(chunk):
            wanted = max(header.size_bytes, min(chunk_bytes, end - position))
            chunk = memoryview(disk.read_all(fd, wanted, position))
            chunk_position, at = position, 0
        batch = chunk[at : at + header.size_bytes]
        if len(batch) < header.size_bytes:
            raise _torn(position, header, position + len(batch))
        yield position, header, batch
        position = next_position


def _torn(position: int, header: BatchHeader, end: int) -> TruncatedBatchError:
    return TruncatedBatchError(
        f"batch at position {position} takes {header.size_bytes} bytes; the log has {end - position} left"
    )
