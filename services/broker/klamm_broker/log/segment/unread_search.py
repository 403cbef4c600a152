"""Counts the records that a reader has still to read in one segment, and finds the time of the next one.

The search reads only headers of batches. It ends after `HEADERS_MAX` of them or `PART_BYTES` of the file, so it can
count the records near the end of a log exactly. Markers and batches of aborted transactions are no records for a
reader.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from klamm.records.header import TIMESTAMP_TYPE_MASK, BatchHeader
from klamm_broker.log.segment.batch_scan import scan_headers
from klamm_broker.log.segment.check_budget import RECORD_NS, CheckBudget
from klamm_broker.log.segment.time_index import NO_TIMESTAMP_MS
from klamm_broker.log.segment.transaction_index import AbortedTransaction
from klamm_server.runtime.disk import Disk

HEADERS_MAX: Final = 64
"""The most batches that are looked at. Each of them may take a read of the disk."""
PART_BYTES: Final = 4 * 1024 * 1024
"""The size of the part of a segment that is searched. It bounds the number of aborted transactions that are loaded."""


class SegmentPart(NamedTuple):
    """A part of a segment that begins and ends between two batches."""

    position: int
    end: int
    end_offset: int | None
    """An offset above all batches of the part. None if the part ends with the segment."""


class UnreadFound(NamedTuple):
    """The unread records of a segment, as far as the search went."""

    record_count: int
    """The number of unread records before `next_offset`."""
    next_offset: int
    """The offset at which the search ended."""
    next_timestamp_ms: int
    """The timestamp of the first unread record, or -1 if none was found or it has none."""


class UnreadSearch(NamedTuple):
    """A search in one segment."""

    disk: Disk
    position: int
    """The position of a batch at or before the one with `start_offset`."""
    end: int
    """The position after the last batch of the part."""
    start_offset: int
    end_offset: int
    """The offset after the last record that counts."""
    aborted: Sequence[AbortedTransaction]
    """The aborted transactions with records in the part, from `start_offset` on."""

    def run(self, fd: int, budget: CheckBudget | None = None) -> UnreadFound:
        """Returns what the segment has from `start_offset` on. `fd` is a descriptor of the segment's log.

        Raises OSError, CorruptBatchError, and OverBudgetError if the search needs more than `budget`."""
        count, offset, timestamp_ms, seen = 0, self.start_offset, NO_TIMESTAMP_MS, 0
        for _, header in scan_headers(self.disk, fd, self.position, self.end):
            if budget is not None:
                budget.take(RECORD_NS)
            if header.last_offset < self.start_offset:
                continue
            if header.base_offset >= self.end_offset or seen == HEADERS_MAX:
                break
            seen += 1
            if not header.is_control and not self._is_aborted(header):
                if not count:
                    timestamp_ms = next_timestamp_ms(header, self.start_offset)
                count += _count_from(header, self.start_offset)
            offset = header.last_offset + 1
        return UnreadFound(count, offset, timestamp_ms)

    def _is_aborted(self, header: BatchHeader) -> bool:
        return header.is_transactional and any(
            transaction.producer_id == header.producer_id
            and transaction.first_offset <= header.base_offset < transaction.last_offset
            for transaction in self.aborted
        )


def next_timestamp_ms(header: BatchHeader, start_offset: int) -> int:
    """Returns the timestamp of the first record of a batch at or after `start_offset`, or -1 if it has none.

    A header has the timestamps of the first record and of the newest one. Those in between are estimated."""
    if header.attributes & TIMESTAMP_TYPE_MASK or header.max_timestamp_ms < 0:
        return header.max_timestamp_ms
    passed = start_offset - header.base_offset
    if passed <= 0:
        return header.base_timestamp_ms
    spread_ms = max(0, header.max_timestamp_ms - header.base_timestamp_ms)
    return header.base_timestamp_ms + spread_ms * passed // max(1, header.last_offset_delta)


def _count_from(header: BatchHeader, start_offset: int) -> int:
    """Returns how many records of a batch are at or after `start_offset`. In a compacted batch, it may be fewer."""
    return min(header.record_count, header.last_offset - max(start_offset, header.base_offset) + 1)
