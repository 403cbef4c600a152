"""Chooses the sealed segment that the scrubber checks next. Pure; times are the wall clock's.

A *pass* reads the sealed segments that a log has when the pass begins, oldest first. The log's next pass begins
`interval_ms` later. One log is read at a time. The order of logs is:

1. logs with a damaged segment that is due for another try,
2. logs that an operator asked for, in the order of the requests,
3. logs with an unfinished pass, even from before a restart,
4. the log that has waited longest for its next pass.

Marks and damaged segments are stored per log directory (`scrub-checkpoint`). So a restart neither begins the pass again
nor forgets the damage. A row has topic, partition, next offset and end offset of the pass, and the time when it began.
Then come the time when the last pass ended (-1 for none) and the base offsets of damaged segments (`-` for none).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

from klamm.model import TopicPartition
from klamm_broker.log.files.checkpoints import CheckpointError, decode_checkpoint, encode_checkpoint
from klamm_server.runtime.disk import Disk

SCRUB_FILE = "scrub-checkpoint"
RETRY_MS = 300_000
"""The time after which a damage that could not be repaired is tried again, because a replica may be in sync by then."""
FINISHED_MAX = 200
"""The most passes without segments that end in one call. More would block the event loop."""
NEVER = -1
_NO_PASS = -1
_NONE = "-"


class ScrubMark(NamedTuple):
    """The progress of the scrub of one log."""

    next_offset: int = _NO_PASS
    """The offset up to which the current pass has checked the log, or -1 without a current pass."""
    end_offset: int = _NO_PASS
    began_ms: int = NEVER
    finished_ms: int = NEVER
    """The time when the last complete pass ended, or -1."""

    @property
    def is_under_way(self) -> bool:
        return self.next_offset != _NO_PASS


class LogState(NamedTuple):
    """The stored state of a log's scrubs."""

    mark: ScrubMark
    damaged: tuple[int, ...]
    """The base offsets of the damaged segments."""


class SealedRange(Protocol):
    """The offsets of a sealed segment."""

    @property
    def base_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...


S = TypeVar("S", bound=SealedRange)


class ScrubPlan:
    """The scrub of all logs of a broker. If `interval_ms` is -1, only requested passes run."""

    def __init__(self, interval_ms: int, states: Mapping[TopicPartition, LogState]) -> None:
        self.interval_ms = interval_ms
        self._marks = {name: state.mark for name, state in states.items()}
        self._retry_ms: dict[tuple[TopicPartition, int], int] = {
            (name, base): 0 for name, state in states.items() for base in state.damaged
        }
        self._asked: dict[TopicPartition, bool] = {}
        """The logs that operators asked for, in order. The value is True after the pass has begun."""
        self.has_more = False
        """True if `next` stopped early, so that the caller must call it again in another turn of the event loop."""

    def ask(self, names: Collection[TopicPartition]) -> None:
        """Requests a full pass of each log, before the passes that are due."""
        for name in names:
            self._asked.pop(name, None)
            self._asked[name] = False

    def is_requested(self, name: TopicPartition) -> bool:
        """Returns True if a requested pass of the log has not ended yet."""
        return name in self._asked

    def mark(self, name: TopicPartition) -> ScrubMark:
        return self._marks.get(name, _NEW)

    def damaged(self, name: TopicPartition) -> tuple[int, ...]:
        return tuple(base for other, base in self._retry_ms if other == name)

    @property
    def damaged_count(self) -> int:
        """The number of damaged segments of all logs."""
        return len(self._retry_ms)

    @property
    def last_finished_ms(self) -> int:
        """The time when a pass over any log last ended, or -1 if none has ended."""
        return max((mark.finished_ms for mark in self._marks.values()), default=NEVER)

    def state(self, name: TopicPartition) -> LogState:
        return LogState(self.mark(name), self.damaged(name))

    def retain(self, names: Collection[TopicPartition]) -> None:
        """Forgets all logs that are not in `names`."""
        for gone in [name for name in self._marks if name not in names]:
            del self._marks[gone]
        for name in [name for name in self._asked if name not in names]:
            del self._asked[name]
        for name, base in [key for key in self._retry_ms if key[0] not in names]:
            del self._retry_ms[name, base]

    def next(
        self, names: Collection[TopicPartition], segments_of: Callable[[TopicPartition], Sequence[S]], now_ms: int
    ) -> tuple[TopicPartition, S] | None:
        """Returns the next segment to check, and the caller reports the result with `checked`. None means that nothing
        is due, unless `has_more`."""
        self.has_more = False
        for name, base in self._due_retries(now_ms):
            segment = next((candidate for candidate in segments_of(name) if candidate.base_offset == base), None)
            if segment is not None:
                return name, segment
            del self._retry_ms[name, base]  # the segment was deleted, or merged with others by a cleaning
        for finished_count, name in enumerate(self._order(names, now_ms)):
            if finished_count == FINISHED_MAX:
                self.has_more = True
                return None
            if not self._asked.get(name, True) or not self.mark(name).is_under_way:
                self._begin(name, segments_of(name), now_ms)
            mark = self.mark(name)
            for segment in segments_of(name):
                if mark.next_offset < segment.end_offset <= mark.end_offset:
                    self._marks[name] = mark._replace(next_offset=max(mark.next_offset, segment.base_offset))
                    return name, segment
            self._finish(name, now_ms)
        return None

    def _due_retries(self, now_ms: int) -> list[tuple[TopicPartition, int]]:
        # A clock that was set back must not delay them.
        return [key for key, due_ms in self._retry_ms.items() if not now_ms < due_ms <= now_ms + RETRY_MS]

    def _order(self, names: Collection[TopicPartition], now_ms: int) -> Iterator[TopicPartition]:
        yield from [name for name in self._asked if name in names]
        if self.interval_ms < 0:
            return
        yield from [name for name in names if self.mark(name).is_under_way]
        due = [name for name in names if not now_ms - self.interval_ms < self.mark(name).began_ms <= now_ms]
        yield from sorted(due, key=lambda name: self.mark(name).began_ms)

    def _begin(self, name: TopicPartition, segments: Sequence[SealedRange], now_ms: int) -> None:
        if name in self._asked:
            self._asked[name] = True
        first = segments[0].base_offset if segments else 0
        end = segments[-1].end_offset if segments else 0
        self._marks[name] = ScrubMark(first, end, now_ms, self.mark(name).finished_ms)

    def _finish(self, name: TopicPartition, now_ms: int) -> None:
        self._asked.pop(name, None)
        self._marks[name] = ScrubMark(began_ms=self.mark(name).began_ms, finished_ms=now_ms)

    def checked(self, name: TopicPartition, segment: SealedRange, *, is_damaged: bool, now_ms: int) -> None:
        """Notes that the segment from `next` was checked. `is_damaged` is True if its damage could not be repaired."""
        key = (name, segment.base_offset)
        if is_damaged:
            self._retry_ms[key] = now_ms + RETRY_MS
        else:
            self._retry_ms.pop(key, None)
        mark = self.mark(name)
        if mark.is_under_way and segment.base_offset <= mark.next_offset < segment.end_offset:
            self._marks[name] = mark._replace(next_offset=segment.end_offset)


_NEW = ScrubMark()


def write_states(disk: Disk, path: str, states: Mapping[TopicPartition, LogState]) -> None:
    """Replaces a scrub checkpoint durably. Raises OSError."""
    rows = [(*name, *state.mark, ",".join(map(str, state.damaged)) or _NONE) for name, state in sorted(states.items())]
    disk.write_atomically(path, encode_checkpoint(rows))


def read_states(disk: Disk, path: str) -> dict[TopicPartition, LogState]:
    """Reads the states of all logs; there are none without a file. Raises CheckpointError and OSError."""
    if not disk.exists(path):
        return {}
    rows = decode_checkpoint(path, disk.read_file(path), (str, int, int, int, int, int, str))
    return {TopicPartition(str(row[0]), int(row[1])): _state(path, row) for row in rows}


def _state(path: str, row: Sequence[str | int]) -> LogState:
    listed = str(row[6])
    try:
        damaged = () if listed == _NONE else tuple(map(int, listed.split(",")))
    except ValueError:
        raise CheckpointError(f"checkpoint {path}: {listed!r} is not valid, expected base offsets") from None
    return LogState(ScrubMark(*map(int, row[2:6])), damaged)
