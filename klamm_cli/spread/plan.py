"""Decides whether a topic can be spread, and which phase is next. Pure.

    create -> claim -> copy -> cut -> groups

create   the target does not exist
claim    the target is empty, and the own group has no offsets in the source
copy     the copiers continue at the offsets of the own group
cut      the source does not grow any more, and everything is copied: the boundary is stored
groups   the boundary is stored, and the groups move one by one
"""

from __future__ import annotations

import enum
from typing import Final

from klamm.partitioner import key_partition
from klamm_cli.spread.facts import SpreadFacts
from klamm_cli.text.amounts import counted, record_count

NEAR_END: Final = 1_000
"""The copy of a topic that is being written ends if no more offsets than these are left."""


class Phase(enum.StrEnum):
    CREATE = "create"
    CLAIM = "claim"
    COPY = "copy"
    GROUPS = "groups"


def next_phase(facts: SpreadFacts) -> Phase:
    """Returns the phase that the stored state is in. The cut is the end of `copy`."""
    if facts.target is None:
        return Phase.CREATE
    if facts.boundary:
        return Phase.GROUPS
    return Phase.COPY if facts.copied else Phase.CLAIM


def refusal(facts: SpreadFacts) -> str | None:
    """Returns why the source cannot be spread into the target, and what to do. Returns None if it can."""
    source, target = facts.names.source, facts.names.target
    count = len(facts.source.ends)
    if facts.source.internal:
        return f"topic {source} is internal and cannot be spread"
    if facts.partitions <= count:
        return f"--partitions {facts.partitions}: expected more than the {counted(count, 'partition')} of {source}"
    if facts.target is None:
        return None
    if len(facts.target.ends) != facts.partitions:
        there = counted(len(facts.target.ends), "partition")
        return f"topic {target} has {there}, not {facts.partitions}: name another topic, or --partitions of this one"
    return _state_refusal(facts, facts.target.is_empty)


def _state_refusal(facts: SpreadFacts, is_empty: bool) -> str | None:
    source, target = facts.names.source, facts.names.target
    copied, boundary = facts.copied, facts.boundary
    if not copied and not boundary:
        if is_empty:
            return None
        return (
            f"topic {target} has records that this command did not copy, or group {facts.names.group_id} has lost its"
            " offsets: name a topic that does not exist"
        )
    if missing := sorted(facts.source.ends.keys() - copied.keys()):
        return (
            f"group {facts.names.group_id} has no offset in {source}-{missing[0]}, so the copy cannot continue: begin"
            " again with another topic"
        )
    if boundary and boundary.keys() != set(range(facts.partitions)):
        return f"group {facts.names.group_id} has lost a part of the boundary: begin again with another topic"
    return None


def is_copied(facts: SpreadFacts, left_before: int) -> bool:
    """True if another round of copying would not come closer to the end of the source. `left_before` is the number of
    offsets that the last round had to copy."""
    return facts.left <= NEAR_END or facts.left >= left_before


def cut_refusal(facts: SpreadFacts, before: SpreadFacts, foreign_partitions: list[int]) -> str | None:
    """Returns why the boundary cannot be stored, or None if it can. `before` are facts of some seconds ago.
    `foreign_partitions` are those of the target to which other producers have written."""
    source, target = facts.names.source, facts.names.target
    if grown := sum(facts.source.ends.values()) - sum(before.source.ends.values()):
        return (
            f"{source} still grows: {record_count(grown)} in the last seconds. Stop its producers, and use --cut again"
        )
    if any(facts.source.stable_ends[number] < end for number, end in facts.source.ends.items()):
        return (
            f"{source} has an open transaction. Use --cut again when it has ended; `klamm transactions list` shows"
            " transactions"
        )
    if foreign_partitions:
        return (
            f"other producers have written to {target}-{foreign_partitions[0]} before the cut, so the order of keys is"
            " lost: stop them, delete the topic, and begin again"
        )
    if facts.late:
        return f"{source} has {record_count(facts.late)} that are not copied yet: use --cut again"
    return None


def target_partition(key: bytes | None, partitions: int, sticky: int) -> int:
    """Returns the partition of a record in the target. Records with a key go where Kafka's clients send them. `sticky`
    is for records without a key."""
    return sticky if key is None else key_partition(key, partitions)
