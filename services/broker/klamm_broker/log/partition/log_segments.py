"""The segments of one log as one sequence of offsets, with the producer snapshots beside them.

Kafka's `LogSegments` and `LocalLog`. The module owns the files: which segments exist, which one is appended to, which
ones are open, and the log start offset.

Invariants (`check_invariants`): segments are in the order of their base offsets and do not overlap. The last segment is
*active*: it is open, and only it is appended to. First base offset <= start offset <= end offset.
"""

from __future__ import annotations

import logging
import random
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from klamm.errors import ErrorCode
from klamm.model import TopicPartition
from klamm_broker.log.cleaning.log_cleaning import CleaningSource
from klamm_broker.log.files.storage_failure import LogDir
from klamm_broker.log.log_config import LogConfig
from klamm_broker.log.producers.log_producers import LogProducers
from klamm_broker.log.segment.offset_index import CorruptIndexError
from klamm_broker.log.segment.segment import Segment, roll_jitter_ms
from klamm_broker.log.segment.segment_files import FileSlice
from klamm_broker.log.segment.segment_pool import SegmentPool
from klamm_broker.log.segment.segment_state import SegmentState
from klamm_broker.log.segment.segment_swap import take_place
from klamm_server.runtime.disk import Disk

logger = logging.getLogger(__name__)
T = TypeVar("T")


class LocatedRecords(NamedTuple):
    """The location of the records of a read. It is valid until the next call that changes the log."""

    segment: Segment
    part: FileSlice


class LogSegments:
    """The segments of a log. Methods that change files raise OSError, and `failed` makes the log's exception of it."""

    def __init__(
        self,
        segments: list[Segment],
        producers: LogProducers,
        *,
        disk: Disk,
        log_dir: LogDir,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        start_offset: int,
        pool: SegmentPool,
        rng: random.Random,
    ) -> None:
        self.disk = disk
        self.log_dir = log_dir
        self.directory = directory
        self.topic_partition = topic_partition
        self.config = config
        self.items = segments
        """The segments, oldest first, at least one. Other modules must only read the list."""
        self.active = segments[-1]
        self.start_offset = start_offset
        """The log start offset. Records below it are not served, but their segment may still exist."""
        self.generation = 0
        """How often the log was truncated or moved to another directory. Earlier plans are obsolete."""
        self.created_count = 1
        """The number of segments created, including the first one."""
        self.active_since_ms: int | None = None
        """The time when the active segment was created, or None if it existed when the log was opened."""
        self.is_closed = False
        self.located: dict[tuple[int, int, int, bool], LocatedRecords] = {}
        """The places of records that `LogReader` has found, by its arguments. Emptied when records or segments go."""
        self._bases = [segment.base_offset for segment in segments]
        self._producers = producers
        self._pool = pool
        self._rng = rng

    @property
    def end_offset(self) -> int:
        """The offset of the next record."""
        return self.active.next_offset

    @property
    def size_bytes(self) -> int:
        """The size of all `.log` files."""
        return sum(segment.files.size_bytes for segment in self.items)

    @property
    def base_offsets(self) -> tuple[int, ...]:
        return tuple(self._bases)

    @property
    def sealed(self) -> list[Segment]:
        """The sealed segments, oldest first: all but the active one."""
        return self.items[:-1]

    def check_usable(self) -> None:
        """Raises LogDirFailure if the log directory is offline, and KafkaStorageError if the log is closed."""
        self.log_dir.check_online()
        if self.is_closed:
            raise ErrorCode.KAFKA_STORAGE_ERROR.exception(f"the log of {self.topic_partition} is closed")

    def failed(self, error: OSError, action: str) -> Exception:
        """Returns the exception for a failed action on this log (`LogDir.failed`). `action` ends with its preposition,
        for example "roll of"."""
        return self.log_dir.failed(error, f"{action} {self.topic_partition}")

    # Finding and reading

    def slot_of(self, offset: int) -> int:
        """Returns the position in `items` of the segment with an offset, or 0 for an offset before all segments."""
        return max(0, bisect_right(self._bases, offset) - 1)

    def end_offset_of(self, segment: Segment) -> int:
        """Returns the base offset of the next segment, or the log end offset."""
        if segment is self.active:
            return segment.next_offset
        return self._bases[bisect_right(self._bases, segment.base_offset)]

    def source_of(self, segment: Segment) -> CleaningSource:
        """Returns the path and sizes of a sealed segment, for a thread that must not use the segment itself."""
        return CleaningSource(
            segment, segment.files.path(), segment.base_offset, self.end_offset_of(segment), segment.files.size_bytes
        )

    def opened(self, segment: Segment) -> Segment:
        """Returns the segment, open. It stays open until the pool closes it for another segment."""
        return segment if segment is self.active else self._pool.use(segment)

    def look_in(self, segment: Segment, look: Callable[[Segment], T]) -> T:
        """Returns `look(segment)`. Rebuilds the segment's indexes once if they do not match the log.

        Raises LogDirFailure, and the exceptions of `look`."""
        try:
            self.opened(segment)
            try:
                return look(segment)
            except CorruptIndexError as error:
                logger.warning("rebuilding a damaged index, segment=%s reason=%s", segment.files.path(), error)
                segment.rebuild_indexes()
                return look(segment)
        except OSError as error:
            raise self.failed(error, "read of") from error

    def reading(self, action: Callable[[], T]) -> T:
        """Runs `action` and turns an OSError into the exception of `failed`, such as LogDirFailure."""
        try:
            return action()
        except OSError as error:
            raise self.failed(error, "read of") from error

    # Growing

    def roll(self, base_offset: int, now_ms: int) -> None:
        """Seals the active segment and begins a new one at `base_offset`. An active segment without records is
        replaced."""
        sealed = self.active
        sealed.seal()
        self._begin(base_offset, now_ms)
        sealed.deactivate()
        self._producers.rolled(base_offset)
        self._pool.use(sealed)
        if not sealed.files.size_bytes:
            self._delete(len(self.items) - 2, len(self.items) - 1)

    def _begin(self, base_offset: int, now_ms: int) -> None:
        segment = Segment(
            self.disk,
            self.directory,
            base_offset,
            config=self.config,
            created_ms=now_ms,
            roll_jitter_ms=roll_jitter_ms(self.config, self._rng),
        )
        segment.create()
        self.items.append(segment)
        self._bases.append(base_offset)
        self.active = segment
        self.active_since_ms = now_ms
        self.created_count += 1

    # Shrinking

    def retire_oldest(self, count: int) -> tuple[str, ...]:
        """Removes the `count` oldest segments from the log. Returns their files, which are renamed to `.deleted`."""
        paths: list[str] = []
        for segment in self.items[:count]:  # oldest first, so that a crash in between leaves a log without a gap
            paths += segment.files.rename_deleted()
        self._forget(0, count)
        self._producers.retain_snapshots(self._bases)
        return tuple(paths)

    def truncate_to(self, offset: int) -> None:
        """Removes the records at and above `offset`, which must be in the oldest segment or a later one."""
        self._producers.prepare_truncation(offset)
        self._delete(bisect_right(self._bases, offset), len(self.items))
        self.active = self.items[-1]
        self._pool.forget(self.active)  # the pool must no longer close it
        self.active.activate()
        self.active.truncate_to(offset)
        self._producers.truncated(self.items)
        self.generation += 1

    def truncate_fully(self, offset: int, now_ms: int) -> None:
        """Removes all records. The next record gets `offset`."""
        self._producers.clear()
        self._delete(0, len(self.items))
        self._begin(offset, now_ms)
        self.generation += 1

    def _forget(self, start: int, end: int) -> list[Segment]:
        self.located.clear()
        gone = self.items[start:end]
        del self.items[start:end], self._bases[start:end]
        for segment in gone:
            self._pool.forget(segment)
            segment.retire()
        return gone

    def _delete(self, start: int, end: int) -> None:
        """Deletes the segments, newest first, so that a crash in between leaves a log without a gap."""
        for segment in reversed(self._forget(start, end)):
            segment.files.remove()

    # Replacing

    def has(self, segments: Sequence[Segment]) -> bool:
        """Returns True if these segments are still neighbours in the log."""
        slot = bisect_left(self._bases, segments[0].base_offset) if segments else 0
        return self.items[slot : slot + len(segments)] == segments

    def replace(self, replaced: Sequence[Segment], announced: Segment) -> list[str]:
        """Puts an announced segment (`segment_swap.py`) in the place of others. Returns the files of the others.

        After an OSError, only the recovery of a restart can complete or undo the replacement."""
        slot = bisect_left(self._bases, replaced[0].base_offset)
        paths = take_place(self.disk, announced, replaced)
        self._forget(slot, slot + len(replaced))
        self.items.insert(slot, announced)
        self._bases.insert(slot, announced.base_offset)
        self._producers.retain_snapshots(self._bases)
        return paths

    # Closing and moving

    def release(self) -> None:
        """Closes all files without writing. The log cannot be used afterwards."""
        self.is_closed = True
        for segment in self.items:
            self._pool.forget(segment)
            segment.release()

    def relocate(self, directory: str) -> None:
        """Sets the new path, after the directory was renamed. Earlier plans are obsolete."""
        self.directory = directory
        for segment in self.items:
            segment.files.directory = directory
        self._producers.relocate(directory)
        self.generation += 1

    def check_invariants(self) -> None:
        """Asserts the invariants in the module's docstring. Scans every segment."""
        assert self._bases == [segment.base_offset for segment in self.items]
        assert self.active is self.items[-1]
        assert self.active.state is SegmentState.ACTIVE, self.active.state
        assert self._bases[0] <= self.start_offset <= self.end_offset, (self._bases, self.end_offset)
        for segment in self.items:
            assert not segment.aborted.is_lacking, segment.base_offset
            self.opened(segment).check_invariants()
        for before, after in zip(self.items, self.items[1:], strict=False):
            assert before.next_offset <= after.base_offset, (before.next_offset, after.base_offset)
