"""The subscription of a consumer, and the partitions that are assigned to it.

A subscription never changes its kind: topics by name, topics by pattern, or partitions assigned by the user. Each
assigned partition has a `PartitionState` with its position. A position epoch is never used twice, even if a partition
is revoked and assigned again.

Follows `org.apache.kafka.clients.consumer.internals.SubscriptionState`."""

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
    """The ways in which partitions are chosen."""

    NONE = "none"
    TOPICS = "topics"
    PATTERN = "pattern"
    SERVER_PATTERN = "a pattern that the coordinator matches"
    ASSIGNED = "assigned"


class SubscriptionState:
    """The subscription of one consumer. Only the consumer changes it.

    Invariants: partitions are assigned only under a subscription. With TOPICS or PATTERN they are partitions of
    subscribed topics, except between a change of the subscription and the next rebalance."""

    def __init__(self) -> None:
        self.type = SubscriptionType.NONE
        self.topics: frozenset[str] = frozenset()
        """The topics that a TOPICS or PATTERN subscription has now. With SERVER_PATTERN, the topics of the assigned
        partitions."""
        self.pattern: re.Pattern[str] | None = None
        self.server_pattern = ""
        """The expression of a SERVER_PATTERN subscription, which the coordinator matches; empty for the other types."""
        self.is_unchecked = False
        """True if leaders have changed, or a position became suspect, since the last `check_leaders`."""
        self._partitions: dict[TopicPartition, PartitionState] = {}
        self._epochs = itertools.count(1)

    # --- what is subscribed

    @property
    def auto_assigned(self) -> bool:
        """True if the group assigns the partitions."""
        return self.type in (SubscriptionType.TOPICS, SubscriptionType.PATTERN, SubscriptionType.SERVER_PATTERN)

    @property
    def named_topics(self) -> frozenset[str]:
        """The topics that this consumer requests by name."""
        return frozenset() if self.type is SubscriptionType.SERVER_PATTERN else self.topics

    def subscribe_server_pattern(self, pattern: str) -> None:
        """Subscribes by a pattern that the coordinator matches. The group's assignment sets the topics (KIP-848)."""
        self._become(SubscriptionType.SERVER_PATTERN)
        self.server_pattern = pattern

    def subscribe_topics(self, topics: Iterable[str]) -> bool:
        """Subscribes to topics by name. Returns whether the topics changed."""
        self._become(SubscriptionType.TOPICS)
        return self._set_topics(topics)

    def subscribe_pattern(self, pattern: re.Pattern[str]) -> None:
        """Subscribes by a pattern. `match_topics` sets the topics, now and after every change of the cluster."""
        self._become(SubscriptionType.PATTERN)
        self.pattern = pattern

    def match_topics(self, existing: Iterable[str]) -> bool:
        """Subscribes to the topics of `existing` whose whole name matches the pattern. Returns whether the topics
        changed."""
        assert self.pattern is not None, "no pattern subscription"
        return self._set_topics(topic for topic in existing if self.pattern.fullmatch(topic))

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Assigns exactly these partitions, without a group. Partitions that were assigned before keep their state."""
        self._become(SubscriptionType.ASSIGNED)
        self._replace(partitions)

    def assign_from_group(self, partitions: Iterable[TopicPartition]) -> None:
        """Applies the assignment of a rebalance. Partitions that were assigned before keep their state."""
        assert self.auto_assigned, f"a group assignment under a subscription of type {self.type.value}"
        self._replace(partitions)
        if self.type is SubscriptionType.SERVER_PATTERN:
            self.topics = frozenset(tp.topic for tp in self._partitions)

    def unsubscribe(self) -> None:
        self.type = SubscriptionType.NONE
        self.topics = frozenset()
        self.pattern = None
        self.server_pattern = ""
        self._replace(())

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
        before = self._partitions
        self._partitions = {tp: before.get(tp) or PartitionState(self._epochs) for tp in sorted(set(partitions))}
        for tp in before.keys() - self._partitions.keys():
            before[tp].refetch()

    # --- what is assigned

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self._partitions)

    def get(self, tp: TopicPartition) -> PartitionState | None:
        return self._partitions.get(tp)

    def require(self, tp: TopicPartition) -> PartitionState:
        """Returns the state of an assigned partition. Raises IllegalStateError if `tp` is not assigned."""
        state = self._partitions.get(tp)
        if state is None:
            raise IllegalStateError(f"{tp} is not assigned to this consumer")
        return state

    def partitions_where(self, predicate: Callable[[PartitionState], bool]) -> list[TopicPartition]:
        """Returns the assigned partitions that satisfy `predicate`, sorted."""
        return [tp for tp, state in self._partitions.items() if predicate(state)]

    def initializing(self) -> list[TopicPartition]:
        return self.partitions_where(lambda state: state.state is PositionState.INITIALIZING)

    def resetting(self) -> dict[TopicPartition, int]:
        """Returns the partitions that wait for the offset at a timestamp, with these timestamps."""
        return {
            tp: state.reset_timestamp_ms
            for tp, state in self._partitions.items()
            if state.state is PositionState.RESETTING
        }

    def validating(self) -> dict[TopicPartition, Validation]:
        """Returns the positions that have to be validated, by partition."""
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
        """Marks a position as suspect, after the leader reported that its log diverges from the records that were
        read.
        """
        self.require(tp).suspect = True
        self.is_unchecked = True

    def check_leaders(self, leader_epoch_of: Callable[[TopicPartition], int]) -> None:
        """Requests a validation of all positions that are suspect, or were read under another leader epoch than the
        present one. The epoch is -1 without a leader. Records that were fetched ahead of them are then not returned."""
        self.is_unchecked = False
        for tp, state in self._partitions.items():
            state.check_leader(leader_epoch_of(tp))

    def is_validating(self, tp: TopicPartition, asked: Validation) -> bool:
        """Returns whether the position still waits for the answer to this validation."""
        state = self._partitions.get(tp)
        return (
            state is not None
            and state.state is PositionState.VALIDATING
            and state.position_epoch == asked.position_epoch
        )

    def complete_validation(
        self, tp: TopicPartition, offset: int, leader_epoch: int, *, current_leader_epoch: int
    ) -> None:
        """Ends the validation of a position: it is valid at `offset`, after a batch of `leader_epoch`, under the
        current leader."""
        self.require(tp).complete_validation(offset, leader_epoch, current_leader_epoch)
        self.is_unchecked = True  # The leader may have changed during the validation.

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns the offsets to commit for all records that poll has returned, by partition."""
        return {
            tp: OffsetAndMetadata(state.position, "", state.leader_epoch)
            for tp, state in self._partitions.items()
            if state.state is PositionState.FETCHING
        }

    def check_invariants(self) -> None:
        """Raises AssertionError if an invariant does not hold."""
        epochs = [state.position_epoch for state in self._partitions.values()]
        assert len(set(epochs)) == len(epochs), f"position epochs are shared: {epochs}"
        assert self.type is not SubscriptionType.NONE or not self._partitions, "assigned without a subscription"
        for tp, state in self._partitions.items():
            state.check_invariants(tp)
