"""Dumps the entries of a segment's indexes, and checks whether the log agrees with them.

An index that lags behind its log is in order: a running broker writes entries from time to time, and all of them
when a segment is rolled or closed. An entry that the log contradicts is damage.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator

from klamm.records import BatchHeader, ControlRecordType, CorruptBatchError, TruncatedBatchError
from klamm_broker.log.segment.batch_scan import CHECKED_CHUNK_BYTES, scan_batches, scan_headers
from klamm_broker.log.segment.offset_index import CorruptIndexError, IndexEntry, OffsetIndex
from klamm_broker.log.segment.record_set import marker_of
from klamm_broker.log.segment.time_index import NO_TIMESTAMP_MS, TimeIndex, TimestampOffset, latest_timestamp_ms
from klamm_broker.log.segment.transaction_index import AbortedTransaction, TransactionIndex
from klamm_cli.log_dump import line
from klamm_cli.log_dump.line import DumpLine
from klamm_server.runtime.disk import Disk

Headers = Iterator[tuple[int, BatchHeader]]


def dump_offset_index(disk: Disk, path: str, *, base_offset: int, log_path: str | None) -> Iterator[DumpLine]:
    """Yields the lines for an offset index. `log_path` is the log to compare the index with, or None. Raises
    OSError."""
    data = disk.read_file(path)
    try:
        entries = list(OffsetIndex.decode(base_offset, len(data), data).entries())
    except CorruptIndexError as error:
        yield line.damage(path, str(error))
        return
    yield from (line.entry(offset=offset, position=position) for offset, position in entries)
    if log_path is not None:
        yield from _against(disk, path, log_path, len(entries), lambda headers: check_offset_index(entries, headers))


def dump_time_index(disk: Disk, path: str, *, base_offset: int, log_path: str | None) -> Iterator[DumpLine]:
    """Yields the lines for a time index. `log_path` is the log to compare the index with, or None. Raises OSError."""
    data = disk.read_file(path)
    try:
        entries = list(TimeIndex.decode(base_offset, len(data), data).entries())
    except CorruptIndexError as error:
        yield line.damage(path, str(error))
        return
    yield from (line.entry(timestamp=timestamp, offset=offset) for timestamp, offset in entries)
    if log_path is not None:
        yield from _against(disk, path, log_path, len(entries), lambda headers: check_time_index(entries, headers))


def dump_transaction_index(disk: Disk, path: str, *, base_offset: int, log_path: str | None) -> Iterator[DumpLine]:
    """Yields the lines for a transaction index. `log_path` is the log to compare the index with, or None. Raises
    OSError."""
    try:
        entries = list(TransactionIndex.decode(base_offset, disk.read_file(path)).entries())
    except CorruptIndexError as error:
        yield line.damage(path, str(error))
        return
    for entry in entries:
        yield line.entry(
            producerId=entry.producer_id,
            firstOffset=entry.first_offset,
            lastOffset=entry.last_offset,
            lastStableOffset=entry.last_stable_offset,
        )
    if log_path is not None:
        try:
            aborted = dict(_abort_markers(disk, log_path))
        except CorruptBatchError as error:
            yield line.damage(path, f"cannot be verified, {log_path} is damaged: {error}")
            return
        problems = list(check_transaction_index(entries, aborted))
        yield from _verdict(path, log_path, len(entries), problems)


def check_offset_index(entries: Iterable[IndexEntry], headers: Headers) -> Iterator[str]:
    """Yields an error for each entry that the batches of the log contradict. `headers` are in the order of the log.
    Pure."""
    position, header = -1, None
    for entry in entries:
        while position < entry.position and (following := next(headers, None)) is not None:
            position, header = following
        if header is None or position != entry.position:
            yield f"offset {entry.offset}: no batch begins at position {entry.position}"
        elif header.last_offset != entry.offset:
            yield f"offset {entry.offset}: the batch at position {position} ends with offset {header.last_offset}"


def check_time_index(entries: Iterable[TimestampOffset], headers: Headers) -> Iterator[str]:
    """Yields an error for each entry that the batches of the log contradict. `headers` are in the order of the log.
    Pure.

    An entry names the largest timestamp so far, and an offset in the first batch with that timestamp. Klamm writes the
    batch's last offset. Older versions of Kafka wrote the record's offset."""
    largest_before, header = NO_TIMESTAMP_MS, None
    for timestamp_ms, offset in entries:
        while header is None or header.last_offset < offset:
            if header is not None:
                largest_before = max(largest_before, latest_timestamp_ms(header))
            _, header = next(headers, (0, None))
            if header is None:
                yield f"timestamp {timestamp_ms}: the log has no offset {offset}"
                return
        if header.base_offset > offset:
            yield f"timestamp {timestamp_ms}: the log has no offset {offset}"
        elif latest_timestamp_ms(header) != timestamp_ms:
            found = latest_timestamp_ms(header)
            yield f"timestamp {timestamp_ms}: the batch with offset {offset} has {found} as its largest"
        elif largest_before >= timestamp_ms:
            yield f"timestamp {timestamp_ms}: a batch before offset {offset} has {largest_before}"


def check_transaction_index(entries: Iterable[AbortedTransaction], aborted: dict[int, int]) -> Iterator[str]:
    """Yields an error for each entry without an abort marker in the log. `aborted` maps the offsets of abort markers to
    their producer ids. Pure."""
    for entry in entries:
        if aborted.get(entry.last_offset) != entry.producer_id:
            yield f"producer {entry.producer_id}: the log has no abort marker of it at offset {entry.last_offset}"


def _against(
    disk: Disk, path: str, log_path: str, count: int, check: Callable[[Headers], Iterator[str]]
) -> Iterator[DumpLine]:
    fd = disk.open(log_path, os.O_RDONLY)
    try:
        problems = list(check(_whole_batches(disk, fd)))
    except CorruptBatchError as error:
        yield line.damage(path, f"cannot be verified, {log_path} is damaged: {error}")
        return
    finally:
        disk.close(fd)
    yield from _verdict(path, log_path, count, problems)


def _whole_batches(disk: Disk, fd: int) -> Headers:
    """Yields the headers of the log's whole batches. Skips an incomplete batch at the end, which the dump of the log
    reports."""
    with contextlib.suppress(TruncatedBatchError):
        yield from scan_headers(disk, fd, 0, os.fstat(fd).st_size)


def _verdict(path: str, log_path: str, count: int, problems: list[str]) -> Iterator[DumpLine]:
    yield from (line.damage(path, problem) for problem in problems)
    if not problems:
        yield line.note(path, f"{count} entries agree with {os.path.basename(log_path)}")


def _abort_markers(disk: Disk, log_path: str) -> Iterator[tuple[int, int]]:
    """Yields the offset and the producer id of each abort marker in the log."""
    fd = disk.open(log_path, os.O_RDONLY)
    try:
        with contextlib.suppress(TruncatedBatchError):
            for _, header, data in scan_batches(disk, fd, 0, os.fstat(fd).st_size, CHECKED_CHUNK_BYTES):
                marker = marker_of(header, data) if header.is_control else None
                if marker is not None and marker.type is ControlRecordType.ABORT:
                    yield header.last_offset, header.producer_id
    finally:
        disk.close(fd)
