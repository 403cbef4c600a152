"""roundrobin: members take turns over the partitions of all topics (Kafka's RoundRobinAssignor)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from klamm.consumer.assignors.base import (
    Assignments,
    Member,
    RebalanceProtocol,
    partitions_of,
    subscribers_by_topic,
)
from klamm.model import TopicPartition


class RoundRobinAssignor:
    """Assigns partitions to the members in turn. Skips a member that is not subscribed to the topic."""

    name = "roundrobin"
    rebalance_protocol = RebalanceProtocol.EAGER

    def user_data(self, owned: Iterable[TopicPartition], generation_id: int) -> bytes | None:
        return None

    def assign(self, partition_counts: Mapping[str, int], members: Iterable[Member]) -> Assignments:
        ordered = sorted(members, key=lambda member: member.order)
        assignments: Assignments = {member.member_id: [] for member in ordered}
        subscribers = subscribers_by_topic(partition_counts, ordered)
        eligible = {topic: {member.member_id for member in of} for topic, of in subscribers.items()}
        turn = 0
        for partition in partitions_of(subscribers, partition_counts):
            while ordered[turn % len(ordered)].member_id not in eligible[partition.topic]:
                turn += 1
            assignments[ordered[turn % len(ordered)].member_id].append(partition)
            turn += 1
        return assignments
