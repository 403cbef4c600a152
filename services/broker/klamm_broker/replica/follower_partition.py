"""A follower's half of one partition under one leader epoch: where it stands, and what an answer of the leader does.

Kafka's `ReplicaFetcherThread.processPartitionData` and the truncation of `AbstractFetcherThread` (KIP-101, 279, 595).
Every fetch says how far the log goes and which epoch wrote its last record; a leader whose log is another says where
the two part. The log is cut there, or where its own entries say that they part already, and asked again, until they
agree. It is never cut for a high watermark.

A fetch is answered once, and an answer to another position than the present one is dropped: it is late. Pure but for
the log.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from klamm.errors import ErrorCode
from klamm.model import NO_LEADER_EPOCH
from klamm.records.header import Buffer
from klamm_broker.replica.follower_state import UNKNOWN_OFFSET
from klamm_broker.replica.replica_log import ReplicaLog

_SUPERSEDED = frozenset({ErrorCode.FENCED_LEADER_EPOCH})
"""There is a newer leader epoch: only metadata can help."""


class LogEpochEnd(NamedTuple):
    """An epoch of a log and one past its last offset; epoch -1: the log knows none as small."""

    epoch: int
    end_offset: int


class FollowerPosition(NamedTuple):
    """What the follower's next fetch says."""

    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int


class LeaderAnswer(NamedTuple):
    """One partition's part of a leader's answer."""

    error_code: int
    fetch_offset: int
    """The position that is answered."""
    high_watermark: int
    log_start_offset: int
    log_end_offset: int
    records: Buffer
    diverging: LogEpochEnd | None


class NextStep(enum.Enum):
    """What the follower does after an answer."""

    FETCH = enum.auto()
    BACK_OFF = enum.auto()
    """Fetch, but not at once."""
    AWAIT_METADATA = enum.auto()
    """Nothing, until the controller names a leader."""


class FollowerUpdate(NamedTuple):
    """What an answer came to."""

    next_step: NextStep
    high_watermark: int
    truncated_from: int | None = None
    """Where the log ended before it was cut. The caller stores the recovery point before it appends again."""
    lost_offsets: int = 0
    """Offsets below the high watermark that were cut, as the leader does not have them: an unclean election."""


class FollowerPartition:
    """See the module's docstring. A newer leader epoch has a new object."""

    def __init__(self, log: ReplicaLog, *, leader_epoch: int) -> None:
        self._log = log
        self.leader_epoch = leader_epoch
        self._leader_end_offset = UNKNOWN_OFFSET
        self.agrees = False
        """The leader found its own log in all that is here."""

    def replace_log(self, log: ReplicaLog) -> None:
        """Continues with another log, which has equal records (`future_replica.py`)."""
        self._log = log

    @property
    def position(self) -> FollowerPosition:
        log = self._log
        return FollowerPosition(self.leader_epoch, log.log_end_offset, log.epochs.latest_epoch, log.log_start_offset)

    @property
    def lag(self) -> int:
        """Records of the leader, as of its last answer, that are not here."""
        return max(0, self._leader_end_offset - self._log.log_end_offset)

    @property
    def is_caught_up(self) -> bool:
        """Whether it has all that the leader had at its last answer; False before the first one."""
        return UNKNOWN_OFFSET < self._leader_end_offset <= self._log.log_end_offset

    def on_answer(self, answer: LeaderAnswer, *, high_watermark: int, now_ms: int) -> FollowerUpdate:
        """`now_ms` is the wall clock's. Raises what the log raises, and a CorruptBatchError; the position is then what
        the log says."""
        log = self._log
        if answer.fetch_offset != log.log_end_offset:
            return FollowerUpdate(NextStep.FETCH, high_watermark)
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return self._on_out_of_range(answer, high_watermark, now_ms)
        if answer.error_code:
            step = NextStep.AWAIT_METADATA if answer.error_code in _SUPERSEDED else NextStep.BACK_OFF
            return FollowerUpdate(step, high_watermark)
        self._leader_end_offset = answer.log_end_offset
        if answer.diverging is not None:
            return self._truncate(self._common_end(answer.diverging), high_watermark, now_ms)
        self.agrees = True
        if len(answer.records):
            log.append_as_follower(answer.records, now_ms=now_ms)
        high_watermark = max(high_watermark, min(answer.high_watermark, log.log_end_offset))
        log_start_offset = min(answer.log_start_offset, high_watermark)
        if log_start_offset > log.log_start_offset:
            log.advance_log_start(log_start_offset, high_watermark=high_watermark)
        return FollowerUpdate(NextStep.FETCH, high_watermark)

    def _common_end(self, leader: LogEpochEnd) -> int:
        """Returns the offset up to which the two logs agree, or the offset at which to ask again if more is unknown."""
        log_end_offset = self._log.log_end_offset
        if leader.epoch == NO_LEADER_EPOCH:
            return min(leader.end_offset, log_end_offset)
        own_epoch, own_end_offset = self._log.epochs.end_offset_for(leader.epoch, log_end_offset)
        if own_epoch == leader.epoch:
            return min(own_end_offset, leader.end_offset)
        if own_epoch == NO_LEADER_EPOCH:
            return min(leader.end_offset, log_end_offset)
        # This log lacks the epoch. The leader's log has no records after the end of the previous epoch here.
        return min(own_end_offset, log_end_offset)

    def _on_out_of_range(self, answer: LeaderAnswer, high_watermark: int, now_ms: int) -> FollowerUpdate:
        log_end_offset = self._log.log_end_offset
        if answer.log_end_offset < log_end_offset:
            return self._truncate(answer.log_end_offset, high_watermark, now_ms)
        if answer.log_start_offset > log_end_offset:
            self._log.truncate_fully_and_start_at(answer.log_start_offset, now_ms=now_ms)
            return FollowerUpdate(NextStep.FETCH, answer.log_start_offset, truncated_from=log_end_offset)
        return FollowerUpdate(NextStep.FETCH, high_watermark)  # the leader's log has grown since the answer

    def _truncate(self, offset: int, high_watermark: int, now_ms: int) -> FollowerUpdate:
        log_end_offset = self._log.log_end_offset
        if offset >= log_end_offset:
            return FollowerUpdate(NextStep.BACK_OFF, high_watermark)  # the leader contradicts itself
        self._log.truncate_to(offset, now_ms=now_ms)
        return FollowerUpdate(
            NextStep.FETCH,
            min(high_watermark, offset),
            truncated_from=log_end_offset,
            lost_offsets=max(0, high_watermark - offset),
        )
