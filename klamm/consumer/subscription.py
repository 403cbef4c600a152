"""What a consumer consumes, and where it is in each partition.

A subscription is of one kind for as long as it lasts: topics by name, topics by pattern, or partitions
assigned by hand. Each assigned partition is in one of four states:

    INITIALIZING   where to begin is not known yet: the committed offset is being looked up
    RESETTING      the position will be the offset at `reset_timestamp_ms` (earliest and latest included)
    VALIDATING     `position` counts when the leader has the record before it, of `leader_epoch`, in its log (KIP-320)
    FETCHING       `position` is the next offset to return

    INITIALIZING -> VALIDATING (committed offset with its epoch, such a seek) | FETCHING (without) |
                    RESETTING (nothing committed)
    RESETTING    -> FETCHING (offset found) | VALIDATING, FETCHING (seek)
    VALIDATING   -> FETCHING (at the position, or where the logs part) | RESETTING (nobody knows where)
    FETCHING     -> FETCHING (records returned, seek) | VALIDATING (another leader epoch, an answer that the logs part,
                    such a seek) | RESETTING (seek_to_beginning, out of range ...)

Whatever moves a position other than returning records gives the partition a new `position_epoch`, so that
what was fetched for the old position can be told from what was fetched for the new one. Pausing is
orthogonal. Epochs are never used twice, also not by a partition that is taken away and comes back.

Follows `org.apache.kafka.clients.consumer.internals.SubscriptionState`.
"""

from __future__ import annotations

import enum
import itertools
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from klamm.errors import IllegalStateError
from klamm.model import NO_LEADER_EPOCH, TopicPartition
from klamm.offsets import OffsetAndMetadata


class SubscriptionType(enum.Enum):
    """How the partitions were chosen."""

    NONE = "none"
    TOPICS = "topics"
    PATTERN = "pattern"
    SERVER_PATTERN = "a pattern that the coordinator matches"
    ASSIGNED = "assigned"


class PositionState(enum.Enum):
    """Of one partition; the table is in the module's docstring."""

    INITIALIZING = "initializing"
    RESETTING = "resetting"
    VALIDATING = "validating"
    FETCHING = "fetching"


@dataclass(slots=True)
class PartitionState:
    """One assigned partition. `position` is set in FETCHING and VALIDATING only, `reset_timestamp_ms` in RESETTING."""

    position_epoch: int
    state: PositionState = PositionState.INITIALIZING
    position: int = -1
    leader_epoch: int = NO_LEADER_EPOCH
    """Of the batch before the position, as far as known: for the commit, and to notice that the log was cut."""
    current_leader_epoch: int = NO_LEADER_EPOCH
    """Under which the position is valid; -1: not compared with any leader's yet."""
    suspect: bool = False
    """A leader's answer says that the position is not valid any more; to be validated with the next poll."""
    reset_timestamp_ms: int = 0
    paused: bool = False
    high_watermark: int | None = None
    last_stable_offset: int | None = None

    @property
    def fetchable(self) -> bool:
        return self.state is PositionState.FETCHING and not self.paused


class Validation(NamedTuple):
    """A position that waits to be validated."""

    position_epoch: int
    position: int
    leader_epoch: int
    """Of the batch before it."""


class SubscriptionState:
    """Owned by the consumer; nothing else changes it.

    Invariants: partitions are assigned only under a subscription; those of a TOPICS or PATTERN subscription
    are of subscribed topics, but for the time between a change of subscription and the next rebalance.
    """

    def __init__(self) -> None:
        self.type = SubscriptionType.NONE
        self.topics: frozenset[str] = frozenset()
        """What a TOPICS or PATTERN subscription covers now."""
        self.pattern: re.Pattern[str] | None = None
        self.server_pattern = ""
        """Of a SERVER_PATTERN subscription; else empty."""
        self.is_unchecked = False
        """Leaders have changed, or a position is suspect, since `check_leaders`."""
        self._partitions: dict[TopicPartition, PartitionState] = {}
        self._epochs = itertools.count(1)

    # --- what is subscribed

    @property
    def auto_assigned(self) -> bool:
        """Partitions come from the group."""
        return self.type in (SubscriptionType.TOPICS, SubscriptionType.PATTERN, SubscriptionType.SERVER_PATTERN)

    @property
    def named_topics(self) -> frozenset[str]:
        """The topics that this consumer asks for by name."""
        return frozenset() if self.type is SubscriptionType.SERVER_PATTERN else self.topics

    def subscribe_server_pattern(self, pattern: str) -> None:
        """Topics follow with what the group assigns (KIP-848)."""
        self._become(SubscriptionType.SERVER_PATTERN)
        self.server_pattern = pattern

    def subscribe_topics(self, topics: Iterable[str]) -> bool:
        """Whether that is a change."""
        self._become(SubscriptionType.TOPICS)
        return self._set_topics(topics)

    def subscribe_pattern(self, pattern: re.Pattern[str]) -> None:
        """Topics follow with `match_topics`, now and on every change of the cluster."""
        self._become(SubscriptionType.PATTERN)
        self.pattern = pattern

    def match_topics(self, existing: Iterable[str]) -> bool:
        """Subscribes to those of `existing` that match the pattern in full; whether that is a change."""
        assert self.pattern is not None, "no pattern subscription"
        return self._set_topics(topic for topic in existing if self.pattern.fullmatch(topic))

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """By hand. Partitions that stay keep their state."""
        self._become(SubscriptionType.ASSIGNED)
        self._replace(partitions)

    def assign_from_group(self, partitions: Iterable[TopicPartition]) -> None:
        """What a rebalance gave. Partitions that stay keep their state."""
        assert self.auto_assigned, f"a group assignment under a subscription of type {self.type.value}"
        self._replace(partitions)
        if self.type is SubscriptionType.SERVER_PATTERN:
            self.topics = frozenset(tp.topic for tp in self._partitions)

    def unsubscribe(self) -> None:
        self.type = SubscriptionType.NONE
        self.topics = frozenset()
        self.pattern = None
        self.server_pattern = ""
        self._partitions.clear()

    def _become(self, wanted: SubscriptionType) -> None:
        if self.type not in (SubscriptionType.NONE, wanted):
            raise IllegalStateError(
                f"the consumer is subscribed by {self.type.value}; unsubscribe before subscribing by {wanted.value}"
            )
        self.type = wanted

    def _set_topics(self, topics: Iterable[str]) -> bool:
        before, self.topics = self.topics, frozenset(topics)
        return self.topics != before

    def _replace(self, partitions: Iterable[TopicPartition]) -> None:
        self._partitions = {
            tp: self._partitions.get(tp) or PartitionState(self._next_epoch()) for tp in sorted(set(partitions))
        }

    def _next_epoch(self) -> int:
        return next(self._epochs)

    # --- what is assigned

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self._partitions)

    def get(self, tp: TopicPartition) -> PartitionState | None:
        return self._partitions.get(tp)

    def require(self, tp: TopicPartition) -> PartitionState:
        """Raises IllegalStateError when `tp` is not assigned."""
        state = self._partitions.get(tp)
        if state is None:
            raise IllegalStateError(f"{tp} is not assigned to this consumer")
        return state

    def partitions_where(self, predicate: Callable[[PartitionState], bool]) -> list[TopicPartition]:
        """Those assigned partitions, sorted."""
        return [tp for tp, state in self._partitions.items() if predicate(state)]

    def initializing(self) -> list[TopicPartition]:
        return self.partitions_where(lambda state: state.state is PositionState.INITIALIZING)

    def resetting(self) -> dict[TopicPartition, int]:
        """With the timestamps whose offsets are wanted."""
        return {
            tp: state.reset_timestamp_ms
            for tp, state in self._partitions.items()
            if state.state is PositionState.RESETTING
        }

    def validating(self) -> dict[TopicPartition, Validation]:
        """Positions to be validated."""
        return {
            tp: Validation(state.position_epoch, state.position, state.leader_epoch)
            for tp, state in self._partitions.items()
            if state.state is PositionState.VALIDATING
        }

    def paused(self) -> frozenset[TopicPartition]:
        return frozenset(self.partitions_where(lambda state: state.paused))

    def pause(self, tp: TopicPartition) -> None:
        self.require(tp).paused = True

    def resume(self, tp: TopicPartition) -> None:
        self.require(tp).paused = False

    # --- where it is

    def seek(self, tp: TopicPartition, offset: int, leader_epoch: int = NO_LEADER_EPOCH) -> None:
        """The next record returned is the first at or after `offset`, if the one before it, of `leader_epoch`, is still
        there; without an epoch that cannot be told."""
        state = self.require(tp)
        known = leader_epoch != NO_LEADER_EPOCH
        self._place(state, PositionState.VALIDATING if known else PositionState.FETCHING, offset, leader_epoch)
        state.current_leader_epoch = NO_LEADER_EPOCH

    def _place(self, state: PartitionState, kind: PositionState, offset: int, leader_epoch: int) -> None:
        state.state = kind
        state.position = offset
        state.leader_epoch = leader_epoch
        state.suspect = False
        state.position_epoch = self._next_epoch()

    def refetch(self, tp: TopicPartition) -> None:
        """What was fetched ahead of the position, or returned and not consumed, is to be fetched again."""
        self.require(tp).position_epoch = self._next_epoch()

    def request_reset(self, tp: TopicPartition, timestamp_ms: int) -> None:
        """The position becomes unknown until the offset at `timestamp_ms` is found."""
        state = self.require(tp)
        state.state = PositionState.RESETTING
        state.reset_timestamp_ms = timestamp_ms
        state.position_epoch = self._next_epoch()

    def complete(self, tp: TopicPartition, position_epoch: int, offset: int, leader_epoch: int) -> bool:
        """A looked-up offset arrived; whether it was still wanted. A seek meanwhile makes it unwanted."""
        state = self._partitions.get(tp)
        if state is None or state.position_epoch != position_epoch or state.state is PositionState.FETCHING:
            return False
        self.seek(tp, offset, leader_epoch)
        return True

    def suspect(self, tp: TopicPartition) -> None:
        """The leader said that its log parts from what was read."""
        self.require(tp).suspect = True
        self.is_unchecked = True

    def check_leaders(self, leader_epoch_of: Callable[[TopicPartition], int]) -> None:
        """Positions read under another leader epoch than the present one (-1: no leader) are to be validated, and those
        that are suspect; what was fetched ahead of them is not returned."""
        self.is_unchecked = False
        for tp, state in self._partitions.items():
            leader_epoch = leader_epoch_of(tp)
            if state.state is not PositionState.FETCHING or leader_epoch == NO_LEADER_EPOCH:
                continue
            moved = leader_epoch != state.current_leader_epoch
            state.current_leader_epoch = leader_epoch
            if (moved or state.suspect) and state.leader_epoch != NO_LEADER_EPOCH:
                self._place(state, PositionState.VALIDATING, state.position, state.leader_epoch)
            elif state.suspect:
                self._place(state, PositionState.FETCHING, state.position, NO_LEADER_EPOCH)

    def is_validating(self, tp: TopicPartition, asked: Validation) -> bool:
        """Whether an answer about the position is still wanted."""
        state = self._partitions.get(tp)
        return (
            state is not None
            and state.state is PositionState.VALIDATING
            and state.position_epoch == asked.position_epoch
        )

    def go_on(self, tp: TopicPartition, offset: int, leader_epoch: int, *, current_leader_epoch: int) -> None:
        """A position that was validating is valid at `offset`, after a batch of `leader_epoch`, under that leader."""
        state = self.require(tp)
        self._place(state, PositionState.FETCHING, offset, leader_epoch)
        state.current_leader_epoch = current_leader_epoch
        self.is_unchecked = True  # The leader may be another one by now.

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What a commit of everything returned so far stores."""
        return {
            tp: OffsetAndMetadata(state.position, "", state.leader_epoch)
            for tp, state in self._partitions.items()
            if state.state is PositionState.FETCHING
        }

    def check_invariants(self) -> None:
        """Raises AssertionError with what is wrong."""
        epochs = [state.position_epoch for state in self._partitions.values()]
        assert len(set(epochs)) == len(epochs), f"position epochs are shared: {epochs}"
        assert self.type is not SubscriptionType.NONE or not self._partitions, "assigned without a subscription"
        for tp, state in self._partitions.items():
            placed = state.state in (PositionState.FETCHING, PositionState.VALIDATING)
            assert not placed or state.position >= 0, f"{tp} is fetching from {state.position}"
            validating = state.state is PositionState.VALIDATING
            assert not validating or state.leader_epoch >= 0, f"{tp} is validating without an epoch"
