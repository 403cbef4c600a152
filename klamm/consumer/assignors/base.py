"""The interface of assignors: pure functions from members and partition counts to assignments.

Only the leader of the group runs an assignor. `partition_counts` has the existing topics. A subscribed topic that is
missing there is not assigned. The result does not depend on the order of the input."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from klamm.consumer.assignors.consumer_protocol import Subscription
from klamm.model import TopicPartition

Assignments = dict[str, list[TopicPartition]]
"""The partitions of each member, by member id. Members without partitions have an empty list."""


class RebalanceProtocol(enum.IntEnum):
    """How members treat their partitions when a rebalance begins (KIP-429)."""

    EAGER = 0
    """Members revoke all partitions before they join."""
    COOPERATIVE = 1
    """Members keep their partitions, and revoke afterwards those that another member gets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A member as the leader sees it."""

    member_id: str
    subscription: Subscription
    group_instance_id: str | None = None

    @property
    def order(self) -> tuple[bool, str]:
        """The sort key of a member: static members first, by their instance id, so that a restart moves no
        partitions.
        """
        if self.group_instance_id:
            return False, self.group_instance_id
        return True, self.member_id


class Assignor(Protocol):
    """An assignment strategy. All members of a group agree on one by its name."""

    name: str
    rebalance_protocol: RebalanceProtocol

    def user_data(self, owned: Iterable[TopicPartition], generation_id: int) -> bytes | None:
        """Returns the bytes that this member adds to its subscription. The leader's assignor reads them."""

    def assign(self, partition_counts: Mapping[str, int], members: Iterable[Member]) -> Assignments:
        """Returns an assignment that gives every partition of every subscribed topic to one subscriber."""


def subscribers_by_topic(partition_counts: Mapping[str, int], members: Iterable[Member]) -> dict[str, list[Member]]:
    """Returns the subscribers of each existing topic in member order. Topics are sorted, and those without subscribers
    are left out."""
    ordered = sorted(members, key=lambda member: member.order)
    topics = {topic for member in ordered for topic in member.subscription.topics}
    subscribed = {member.member_id: frozenset(member.subscription.topics) for member in ordered}
    return {
        topic: [member for member in ordered if topic in subscribed[member.member_id]]
        for topic in sorted(topics)
        if partition_counts.get(topic)
    }


def partitions_of(topics: Iterable[str], partition_counts: Mapping[str, int]) -> list[TopicPartition]:
    """Returns every partition of `topics`, in order."""
    return [TopicPartition(topic, number) for topic in topics for number in range(partition_counts[topic])]
