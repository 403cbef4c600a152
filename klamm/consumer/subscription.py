"""What a consumer consumes: a subscription, and the partitions that are assigned under it.

A subscription is of one kind for as long as it lasts: topics by name, topics by pattern, or partitions
assigned by hand. Where the consumer is in an assigned partition is said by its `PartitionState`. Epochs of positions
are never used twice, also not by a partition that is taken away and comes back.

Follows `org.apache.kafka.clients.consumer.internals.SubscriptionState`.
"""

from __future__ import annotations

import enum
import itertools
import re
from collections.abc import Callable, Iterable

from klamm.consumer.partition_state import PartitionState, PositionState, Validation
from klamm.errors import IllegalStateError
from klamm.model import TopicPartition
from klamm.offsets import OffsetAndMetadata


class SubscriptionType(enum.Enum):
    """How the partitions were chosen."""

    NONE = "none"
    TOPICS = "topics"
    PATTERN = "pattern"
    SERVER_PATTERN = "a pattern that the coordinator matches"
    ASSIGNED = "assigned"


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
        """The expression of a SERVER_PATTERN subscription, which the coordinator matches; empty for the other types."""
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
        """Takes exactly these partitions, without a group's assignment. Partitions that stay keep their state."""
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
            tp: self._partitions.get(tp) or PartitionState(self._epochs) for tp in sorted(set(partitions))
        }

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
        """The assigned partitions that satisfy `predicate`, sorted."""
        return [tp for tp, state in self._partitions.items() if predicate(state)]

    def initializing(self) -> list[TopicPartition]:
        return self.partitions_where(lambda state: state.state is PositionState.INITIALIZING)

    def resetting(self) -> dict[TopicPartition, int]:
        """The partitions that have to find their position, with the timestamps whose offsets are wanted."""
        return {
            tp: state.reset_timestamp_ms
            for tp, state in self._partitions.items()
            if state.state is PositionState.RESETTING
        }

    def validating(self) -> dict[TopicPartition, Validation]:
        """Positions to be validated."""
        return {
            tp: state.validation for tp, state in self._partitions.items() if state.state is PositionState.VALIDATING
        }

    def paused(self) -> frozenset[TopicPartition]:
        return frozenset(self.partitions_where(lambda state: state.paused))

    # --- where it is

    def complete(self, tp: TopicPartition, position_epoch: int, offset: int, leader_epoch: int) -> bool:
        """Moves a partition to the offset that a look-up found. Returns False if the offset is not needed any more,
        because the position has changed since the look-up began."""
        state = self._partitions.get(tp)
        if state is None or state.position_epoch != position_epoch or state.state is PositionState.FETCHING:
            return False
        state.seek(offset, leader_epoch)
        return True

    def suspect(self, tp: TopicPartition) -> None:
        """The leader said that its log parts from what was read."""
        self.require(tp).suspect = True
        self.is_unchecked = True

    def check_leaders(self, leader_epoch_of: Callable[[TopicPartition], int]) -> None:
        """Requests a validation of all positions that are suspect, or were read under another leader epoch than the
        present one. The epoch is -1 without a leader. Records that were fetched ahead of them are then not returned."""
        self.is_unchecked = False
        for tp, state in self._partitions.items():
            state.check_leader(leader_epoch_of(tp))

    def is_validating(self, tp: TopicPartition, asked: Validation) -> bool:
        """Whether an answer about the position is still wanted."""
        state = self._partitions.get(tp)
        return (
            state is not None
            and state.state is PositionState.VALIDATING
            and state.position_epoch == asked.position_epoch
        )

    def complete_validation(
        self, tp: TopicPartition, offset: int, leader_epoch: int, *, current_leader_epoch: int
    ) -> None:
        """A position that was validating is valid at `offset`, after a batch of `leader_epoch`, under that leader."""
        self.require(tp).complete_validation(offset, leader_epoch, current_leader_epoch)
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
            state.check_invariants(tp)
