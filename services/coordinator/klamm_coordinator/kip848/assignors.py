"""The server-side assignors. They decide which member gets which partition.

    uniform   gives all members the same number of partitions, as far as subscriptions allow, and moves few partitions
    range     gives each member a contiguous range of each topic; topics with equal partition counts are split alike, so
              that records with the same key reach the same member; a member that had lower partitions gets lower ones

Both are deterministic. They ignore racks and failure domains. (Kafka: UniformAssignor.java, RangeAssignor.java)
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from klamm_coordinator.records.consumer_group_schemas import Partitions, TopicIdPartition, TopicMetadata


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedMember:
    """A member that partitions are assigned to."""

    instance_id: str | None
    topics: frozenset[str]
    """The names of the topics that the member subscribes to. Some may not exist."""
    before: Partitions
    """The member's previous target. Some of these partitions may not exist any more."""


Members = Mapping[str, AssignedMember]
Topics = tuple[TopicMetadata, ...]
"""Topics in the order of their names."""
Targets = dict[str, set[TopicIdPartition]]
Assignor = Callable[[Topics, Members], Targets]
"""Returns the target of each member by member id. Members without partitions may be missing."""


def assign_uniformly(topics: Topics, members: Members) -> Targets:
    """Returns the targets of all members as the uniform assignor makes them. The module's docstring describes it."""
    targets = _what_stays(topics, members)
    if len({member.topics for member in members.values()}) == 1:
        _cut_to_quota(targets, sum(topic.partition_count for topic in topics if _is_read(topic, members)))
    _fill(targets, topics, members)
    _level(targets, topics, members)
    return targets


def assign_ranges(topics: Topics, members: Members) -> Targets:
    """Returns the targets of all members as the range assignor makes them. The module's docstring describes it."""
    order = sorted(members, key=lambda member_id: _place(members[member_id], member_id))
    targets: Targets = {member_id: set() for member_id in members}
    for topic in topics:
        readers = [member_id for member_id in order if topic.name in members[member_id].topics]
        start = 0
        for place, member_id in enumerate(readers):
            quota, more = divmod(topic.partition_count, len(readers))
            end = start + quota + (place < more)
            targets[member_id].update(TopicIdPartition(topic.topic_id, number) for number in range(start, end))
            start = end
    return targets


ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniformly, "range": assign_ranges}
"""The assignors by the name that members ask for."""


def _is_read(topic: TopicMetadata, members: Members) -> bool:
    return any(topic.name in member.topics for member in members.values())


def _partitions(topic: TopicMetadata) -> list[TopicIdPartition]:
    return [TopicIdPartition(topic.topic_id, number) for number in range(topic.partition_count)]


def _what_stays(topics: Topics, members: Members) -> Targets:
    """Returns the partitions that each member had and whose topics it still reads."""
    by_id = {topic.topic_id: topic for topic in topics}
    return {
        member_id: {
            partition
            for partition in member.before
            if (topic := by_id.get(partition.topic_id)) is not None
            and topic.name in member.topics
            and partition.partition < topic.partition_count
        }
        for member_id, member in members.items()
    }


def _cut_to_quota(targets: Targets, count: int) -> None:
    """Takes partitions away from members that have more than an equal share. All members must read the same topics. If
    the count is not divisible, the members that had the most partitions keep one more."""
    quota, more = divmod(count, len(targets))
    for member_id in sorted(targets, key=lambda target: (-len(targets[target]), target)):
        kept = targets[member_id]
        share = quota + (1 if more and len(kept) > quota else 0)
        more -= share > quota
        for partition in sorted(kept)[share:]:
            kept.discard(partition)


def _fill(targets: Targets, topics: Topics, members: Members) -> None:
    """Gives each partition without an owner to the reader that has the fewest. Topics with the fewest readers come
    first."""
    taken = {partition for partitions in targets.values() for partition in partitions}
    readers = {
        topic.name: [member_id for member_id, member in members.items() if topic.name in member.topics]
        for topic in topics
    }
    for topic in sorted(topics, key=lambda topic: (len(readers[topic.name]), topic.name)):
        heap = [(len(targets[member_id]), member_id) for member_id in readers[topic.name]]
        heapq.heapify(heap)
        for partition in _partitions(topic):
            if heap and partition not in taken:
                count, member_id = heap[0]
                targets[member_id].add(partition)
                heapq.heapreplace(heap, (count + 1, member_id))


def _level(targets: Targets, topics: Topics, members: Members) -> None:
    """Moves partitions from a member to another that has at least two fewer, until no move is left.

    The loop ends, because each move makes the sum of the squares of the counts smaller."""
    moved = True
    while moved:
        moved = False
        for topic in topics:
            readers = [member_id for member_id, member in members.items() if topic.name in member.topics]
            while len(readers) > 1 and _move_one(targets, topic, readers):
                moved = True


def _move_one(targets: Targets, topic: TopicMetadata, readers: list[str]) -> bool:
    to = min(readers, key=lambda member_id: (len(targets[member_id]), member_id))
    for giver in sorted(readers, key=lambda member_id: (-len(targets[member_id]), member_id)):
        if len(targets[giver]) - len(targets[to]) < 2:
            return False
        of_topic = [partition for partition in targets[giver] if partition.topic_id == topic.topic_id]
        if of_topic:
            partition = max(of_topic)
            targets[giver].discard(partition)
            targets[to].add(partition)
            return True
    return False


def _place(member: AssignedMember, member_id: str) -> tuple[float, bool, str]:
    """Returns the sort key of a member. Members that had lower partitions come first, and members that had none come
    last. Static members sort by their instance id."""
    lowest = min((partition.partition for partition in member.before), default=float("inf"))
    return (lowest, member.instance_id is None, member.instance_id or member_id)
