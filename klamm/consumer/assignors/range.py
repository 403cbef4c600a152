"""range: each topic by itself is cut into contiguous ranges (Kafka's RangeAssignor).

If topics have the same number of partitions and the same subscribers, partition n of each topic goes to the same
member. So joins by key work."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from klamm.consumer.assignors.base import Assignments, Member, RebalanceProtocol, subscribers_by_topic
from klamm.model import TopicPartition


class RangeAssignor:
    """Assigns contiguous ranges of each topic. If the number of partitions is not a multiple of the number of members,
    the first members get one more."""

    name = "range"
    rebalance_protocol = RebalanceProtocol.EAGER

    def user_data(self, owned: Iterable[TopicPartition], generation_id: int) -> bytes | None:
        return None

    def assign(self, partition_counts: Mapping[str, int], members: Iterable[Member]) -> Assignments:
        members = list(members)
        assignments: Assignments = {member.member_id: [] for member in members}
        for topic, subscribers in subscribers_by_topic(partition_counts, members).items():
            min_quota, extra = divmod(partition_counts[topic], len(subscribers))
            start = 0
            for index, member in enumerate(subscribers):
                end = start + min_quota + (index < extra)
                assignments[member.member_id] += [TopicPartition(topic, number) for number in range(start, end)]
                start = end
        return assignments
