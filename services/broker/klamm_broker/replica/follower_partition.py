"""A follower's state of one partition under one leader epoch: its next position, and how it applies the leader's
answers.

Kafka's `ReplicaFetcherThread.processPartitionData` and the truncation of `AbstractFetcherThread` (KIP-101, 279, 595).
Every fetch has the follower's end offset and the epoch of its last record. If the leader's log differs, its answer
names the offset where the logs diverge. The follower truncates its log there, or at a lower offset if its own epochs
show an earlier divergence. Then it fetches again, until both logs agree. A follower never truncates its log to the high
watermark.

A fetch is answered once. If the log has moved since the fetch, the follower drops the answer. Pure, except for the log.
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
"""Errors after which only newer metadata help, because there is a newer leader epoch."""


class LogEpochEnd(NamedTuple):
    """An epoch of a log and the offset after its last record. Epoch -1 means that the log has no epoch that small."""

    epoch: int
    end_offset: int


class FollowerPosition(NamedTuple):
    """The position that the follower's next fetch sends."""

    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int


class LeaderAnswer(NamedTuple):
    """The part of a leader's answer that is about one partition."""

    error_code: int
    fetch_offset: int
    """The fetch offset of the request that this answers."""
    high_watermark: int
    log_start_offset: int
    log_end_offset: int
    records: Buffer
    diverging: LogEpochEnd | None


class NextStep(enum.Enum):
    """The follower's next action after an answer."""

    FETCH = enum.auto()
    BACK_OFF = enum.auto()
    """The follower waits before it fetches again."""
    AWAIT_METADATA = enum.auto()
    """The follower does not fetch until newer metadata name a leader."""


class FollowerUpdate(NamedTuple):
    """The result of applying a leader's answer."""

    next_step: NextStep
    high_watermark: int
    truncated_from: int | None = None
    """The log end offset before a truncation, or None without one. The caller must store the recovery point before it
    appends again."""
    lost_offsets: int = 0
    """The number of truncated offsets below the high watermark. The leader lacks them after an unclean election."""


class FollowerPartition:
    """A follower's state of one partition under one leader epoch. A newer leader epoch gets a new object."""

    def __init__(self, log: ReplicaLog, *, leader_epoch: int) -> None:
        self._log = log
        self.leader_epoch = leader_epoch
        self._leader_end_offset = UNKNOWN_OFFSET
        self.agrees = False
        """True if the leader has confirmed that its log contains this log's records."""

    def replace_log(self, log: ReplicaLog) -> None:
        """Continues with another log, which has equal records (`future_replica.py`)."""
        self._log = log

    @property
    def position(self) -> FollowerPosition:
        log = self._log
        return FollowerPosition(self.leader_epoch, log.log_end_offset, log.epochs.latest_epoch, log.log_start_offset)

    @property
    def lag(self) -> int:
        """The number of records that the leader had at its last answer and this log lacks."""
        return max(0, self._leader_end_offset - self._log.log_end_offset)

    @property
    def is_caught_up(self) -> bool:
        """True if the log has all records that the leader had at its last answer. False before the first answer."""
        return UNKNOWN_OFFSET < self._leader_end_offset <= self._log.log_end_offset

    def on_answer(self, answer: LeaderAnswer, *, high_watermark: int, now_ms: int) -> FollowerUpdate:
        """Applies a leader's answer to the log. `now_ms` is the wall clock's time.

        Raises the errors of the log, and CorruptBatchError. After an error, `position` follows from the log's state."""
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
            log.append_as_follower(answer.records, leader_epoch=self.leader_epoch, now_ms=now_ms)
        high_watermark = max(high_watermark, min(answer.high_watermark, log.log_end_offset))
        log_start_offset = min(answer.log_start_offset, high_watermark)
        if log_start_offset > log.log_start_offset:
            log.advance_log_start(log_start_offset, high_watermark=high_watermark)
        return FollowerUpdate(NextStep.FETCH, high_watermark)

    def _common_end(self, leader: LogEpochEnd) -> int:
        """Returns the offset up to which the two logs agree. If this is not known yet, returns the offset for the next
        fetch."""
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
            return FollowerUpdate(NextStep.BACK_OFF, high_watermark)  # the leader's answer contradicts itself
        self._log.truncate_to(offset, now_ms=now_ms)
        return FollowerUpdate(
            NextStep.FETCH,
            min(high_watermark, offset),
            truncated_from=log_end_offset,
            lost_offsets=max(0, high_watermark - offset),
        )
