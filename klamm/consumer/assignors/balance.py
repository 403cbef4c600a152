"""The arithmetic of sticky assignment: fill up and even out what members already have.

Both functions change `owned` (member id -> partitions, in member order) in place and leave `free` assigned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from klamm.model import TopicPartition

Owned = dict[str, list[TopicPartition]]


def balance_uniform(owned: Owned, free: Sequence[TopicPartition]) -> None:
    """Everybody may have everything: counts end within one of each other, with the fewest moves possible.

    Of N partitions and M members, N % M have one more than the rest. Letting those be the members that
    have most already is what makes the number of moves minimal.
    """
    total = len(free) + sum(map(len, owned.values()))
    each, extra = divmod(total, len(owned))
    by_count = sorted(owned, key=lambda member_id: -len(owned[member_id]))
    quotas = {member_id: each + (rank < extra) for rank, member_id in enumerate(by_count)}
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
    """Subscriptions differ: nobody ends two behind a member from which a partition could move to it.

    Each move brings the sum of squared counts down, so it ends. Topics with few subscribers are placed
    first: the others can still avoid those members.
    """
    for partition in sorted(free, key=lambda tp: (len(eligible[tp.topic]), tp)):
        owned[min(eligible[partition.topic], key=lambda member_id: len(owned[member_id]))].append(partition)
    while _move_one(owned, eligible):
        pass


def _move_one(owned: Owned, eligible: Mapping[str, Sequence[str]]) -> bool:
    for member_id in sorted(owned, key=lambda one: -len(owned[one])):
        partitions = owned[member_id]
        for topic in dict.fromkeys(partition.topic for partition in partitions):
            poorest = min(eligible[topic], key=lambda one: len(owned[one]))
            if len(owned[poorest]) + 2 <= len(partitions):
                moved = next(tp for tp in reversed(partitions) if tp.topic == topic)
                partitions.remove(moved)
                owned[poorest].append(moved)
                return True
    return False
