"""Which shards of `__consumer_offsets` know the groups of a hold, and what their answers mean together. Pure.

A shard answers with the lowest committed offset of those groups of the hold that it has. The answers are complete when
every shard has answered that can have a group of the hold. A missing answer never counts as "no group".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from klamm.model import coordinator_shard
from klamm_broker.log.cleaning.retention_hold import NO_GROUP, LowOffset

ALL_GROUPS: Final = "*"
"""The item of `retention.hold.groups` that stands for every group with offsets in the topic."""


class ShardAnswer(NamedTuple):
    """The answer of one coordinator for a partition."""

    shards: frozenset[int]
    """The shards that the answer covers."""
    lowest: LowOffset = NO_GROUP
    """The lowest committed offset among the hold's groups in these shards."""


def shards_of(groups: Sequence[str], shard_count: int) -> frozenset[int]:
    """Returns the shards that can have groups of the hold."""
    if ALL_GROUPS in groups:
        return frozenset(range(shard_count))
    return frozenset(coordinator_shard(group_id, shard_count) for group_id in groups) if shard_count else frozenset()


def lowest_of(groups: Sequence[str], shard_count: int, answers: Iterable[ShardAnswer]) -> LowOffset | None:
    """Returns the lowest committed offset of the hold's groups, or None if an answer is missing.

    Before the first commit of the cluster there are no shards. Then a named group has not begun to read."""
    if not shard_count:
        named = [group_id for group_id in groups if group_id != ALL_GROUPS]
        return LowOffset(0, min(named)) if named else NO_GROUP
    answered: set[int] = set()
    lowest = NO_GROUP
    for answer in answers:
        answered |= answer.shards
        lowest = min(lowest, answer.lowest)
    return lowest if shards_of(groups, shard_count) <= answered else None
