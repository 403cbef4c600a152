"""Finding out again what a log says of its producers: a snapshot, then the batch headers and markers after it.

Kafka's `UnifiedLog.rebuildProducerState`. A batch that is read counts as written when its segment was written last: not
when it says, which is its producer's to choose, lest a producer be forgotten that may still send it again.

Compaction leaves of each producer that has not expired the header of its last batch, or the marker after it, though all
records in it are gone; that is why snapshots stay valid when compaction has been through the log.

A segment whose transaction index was lost gets it from the same walk, which for that begins at or before the segment:
an aborted transaction may have begun in an earlier one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence

from klamm.records.control import ControlRecord
from klamm.records.errors import CorruptBatchError
from klamm.records.header import BatchHeader
from klamm_broker.log.files.disk import Disk
from klamm_broker.log.producers.open_transactions import aborted_by
from klamm_broker.log.producers.producer_snapshot import ProducerSnapshots
from klamm_broker.log.producers.producer_state import ProducerStates
from klamm_broker.log.segment.offset_index import CorruptIndexError
from klamm_broker.log.segment.record_set import marker_of
from klamm_broker.log.segment.segment import Segment
from klamm_broker.log.segment.segment_files import FileSlice

SLOW_MS = 1_000
logger = logging.getLogger(__name__)


def reload_producers(
    states: ProducerStates, snapshots: ProducerSnapshots, segments: Sequence[Segment], disk: Disk
) -> None:
    """Makes `states` what the log consists of `segments` says. Raises OSError.

    Segments are read that reach beyond the latest snapshot, or lack their transaction index, and closed again unless
    they were open; without any snapshot the whole log is read. A segment that is damaged counts up to where it is."""
    started = time.monotonic()
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
    took_ms = int((time.monotonic() - started) * 1000)
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
        segment.write_indexes_if_room()
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
            pass  # from the start, then; the next read there has the index rebuilt
        else:
            start = segment.files.size_bytes if found is None else found[0]
    return ((at, header) for at, header in segment.files.headers(start) if header.last_offset >= position)
