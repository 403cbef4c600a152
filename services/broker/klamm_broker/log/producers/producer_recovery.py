"""Reads the state of producers from a log: from a snapshot, then from the batch headers and markers after it.

Kafka's `UnifiedLog.rebuildProducerState`. A batch counts as written at the last modification of its segment. Its own
timestamp does not count, because the producer chooses it. Otherwise a producer that may still retry could be forgotten.

For each producer that has not expired, compaction keeps the header of its last batch, or the marker after it, even if
all its records are removed. So snapshots stay valid after a compaction.

A segment whose transaction index was lost gets it from the same walk. The walk then begins at or before this segment,
because an aborted transaction may have begun in an earlier one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from klamm.process import PROCESS
from klamm.records.control import ControlRecord
from klamm.records.errors import CorruptBatchError
from klamm.records.header import BatchHeader
from klamm_broker.log.producers.open_transactions import aborted_by
from klamm_broker.log.producers.producer_snapshot import ProducerSnapshots
from klamm_broker.log.producers.producer_state import ProducerStates
from klamm_broker.log.segment.offset_index import CorruptIndexError
from klamm_broker.log.segment.record_set import marker_of
from klamm_broker.log.segment.segment import Segment
from klamm_broker.log.segment.segment_files import FileSlice
from klamm_server.runtime.disk import Disk

SLOW_MS = 1_000
logger = logging.getLogger(__name__)


def reload_producers(
    states: ProducerStates, snapshots: ProducerSnapshots, segments: Sequence[Segment], disk: Disk
) -> None:
    """Sets `states` to the producers of the log with these `segments`. Raises OSError.

    Reads the segments that reach beyond the latest snapshot or lack their transaction index. Closes them again unless
    they were open. Without a snapshot, reads the whole log. A damaged segment counts up to its damage."""
    started_ms = PROCESS.get().monotonic_ms()
    end_offset = segments[-1].next_offset
    snapshots.truncate_to(end_offset)
    snapshots.retain([segment.base_offset for segment in segments])
    states.clear()
    position = segments[0].base_offset
    incomplete = (segment.base_offset for segment in segments if segment.aborted.is_lacking)
    latest = snapshots.read_latest(up_to=min(incomplete, default=end_offset))
    if latest is not None:
        position, rows = latest
        states.restore(rows)
    for segment, following in zip(segments, [*segments[1:], None], strict=True):
        segment_end = end_offset if following is None else following.base_offset
        if segment_end > position or segment.aborted.is_lacking:
            if segment.base_offset > position:
                snapshots.write(segment.base_offset, states)
            _replay(states, segment, position, disk)
    took_ms = PROCESS.get().monotonic_ms() - started_ms
    if took_ms >= SLOW_MS:
        directory = segments[0].files.directory
        logger.info(
            "rebuilt the producer states from the log, log=%s producers=%d start_offset=%d took_ms=%d",
            directory,
            len(states),
            position,
            took_ms,
        )


def _replay(states: ProducerStates, segment: Segment, position: int, disk: Disk) -> None:
    was_open = segment.files.is_open
    segment.open()
    is_indexed = not segment.aborted.is_lacking
    segment.aborted.begin()
    try:
        written_ms = disk.modified_ms(segment.files.path())
        for header, marker in _batches(segment, position):
            completed = states.note(header, base_offset=header.base_offset, now_ms=written_ms, marker=marker)
            if completed is not None and completed.is_aborted and not is_indexed:
                segment.aborted.append(aborted_by(completed))
    except CorruptBatchError as error:
        logger.warning(
            "could not read the producer states after a damaged batch, segment=%s reason=%s",
            segment.files.path(),
            error,
        )
    finally:
        segment.try_write_indexes()
        if not was_open:
            segment.release()


def _batches(segment: Segment, position: int) -> Iterator[tuple[BatchHeader, ControlRecord | None]]:
    for at, header in _headers(segment, position):
        if not header.is_control:
            yield header, None
        else:
            yield header, marker_of(header, segment.files.read(FileSlice(at, header.size_bytes)))


def _headers(segment: Segment, position: int) -> Iterator[tuple[int, BatchHeader]]:
    start = 0
    if position > segment.base_offset:
        try:
            found = segment.reader.find_batch(position)
        except CorruptIndexError:
            pass  # read from the start; the next read there rebuilds the index
        else:
            start = segment.files.size_bytes if found is None else found[0]
    return ((at, header) for at, header in segment.files.headers(start) if header.last_offset >= position)
