"""The arithmetic of sticky assignment: distributes free partitions and moves as few owned partitions as possible.

Both functions change `owned` (member id -> partitions, in member order) in place and leave `free` assigned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from klamm.model import TopicPartition

Owned = dict[str, list[TopicPartition]]


def balance_uniform(owned: Owned, free: Sequence[TopicPartition]) -> None:
    """Balances partitions among members that all subscribe to the same topics, with the fewest moves possible.

    Afterwards the counts of two members differ by one at most. With N partitions and M members, N % M members have one
    more than the rest. The number of moves is minimal because these are the members with the most partitions before.
    """
    total = len(free) + sum(map(len, owned.values()))
    min_quota, extra = divmod(total, len(owned))
    by_count = sorted(owned, key=lambda member_id: -len(owned[member_id]))
    quotas = {member_id: min_quota + (rank < extra) for rank, member_id in enumerate(by_count)}
    pool = list(free)
    for member_id, partitions in owned.items():
        pool += partitions[quotas[member_id] :]
        del partitions[quotas[member_id] :]
    pool.sort(reverse=True)
    for member_id, partitions in owned.items():
        while len(partitions) < quotas[member_id]:
            partitions.append(pool.pop())
    assert not pool, f"{len(pool)} partitions left of {total} for {len(owned)} members"


def balance_general(owned: Owned, free: Sequence[TopicPartition], eligible: Mapping[str, Sequence[str]]) -> None:
    """Balances partitions among members whose subscriptions differ.

    Afterwards no member has two partitions fewer than a member that could give it one. Each move reduces the sum of the
    squared counts, so the loop ends. Topics with few subscribers are placed first, because the other topics can still
    avoid those members.
    """
    for partition in sorted(free, key=lambda tp: (len(eligible[tp.topic]), tp)):
        owned[min(eligible[partition.topic], key=lambda member_id: len(owned[member_id]))].append(partition)
    while _move_one(owned, eligible):
        pass


def _move_one(owned: Owned, eligible: Mapping[str, Sequence[str]]) -> bool:
    for member_id in sorted(owned, key=lambda owner: -len(owned[owner])):
        partitions = owned[member_id]
        for topic in dict.fromkeys(partition.topic for partition in partitions):
            poorest = min(eligible[topic], key=lambda subscriber: len(owned[subscriber]))
            if len(owned[poorest]) + 2 <= len(partitions):
                moved = next(tp for tp in reversed(partitions) if tp.topic == topic)
                partitions.remove(moved)
                owned[poorest].append(moved)
                return True
    return False
