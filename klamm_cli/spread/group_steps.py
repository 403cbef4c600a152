"""Decides what a group of the source has to do before it can read the target. Pure.

A group moves when it has read the whole source and has no members. It then begins at the boundary in the target.
Everything before the boundary is a copy of a record that it has read.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from klamm_cli.text.amounts import record_count


class Step(enum.StrEnum):
    """The next step of a group. `--json` prints the values."""

    MOVE = "move"
    """It has read everything and has no members: its offsets in the target can be stored."""
    MOVED = "moved"
    """Its offsets in the target are at the boundary, or behind it."""
    OWN_OFFSETS = "own-offsets"
    """It has other offsets in the target, which the command does not change."""
    STOP = "stop"
    """It has read everything, and has members."""
    READ = "read"
    """Its members have still to read records of the source."""
    START = "start"
    """It has still to read records of the source, and has no members."""
    UNKNOWN = "unknown"
    """Its lag is not known now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """A group with offsets in the source."""

    group_id: str
    lag: int | None
    """The number of records of the source that it has still to read. None if it is not known."""
    member_count: int
    target_offsets: Mapping[int, int] = field(default_factory=dict)
    """Its committed offsets in the target, by partition."""


def step_of(group: GroupFacts, boundary: Mapping[int, int]) -> Step:
    if group.target_offsets:
        is_moved = all(group.target_offsets.get(number, -1) >= offset for number, offset in boundary.items())
        return Step.MOVED if is_moved else Step.OWN_OFFSETS
    if group.lag is None:
        return Step.UNKNOWN
    if group.lag:
        return Step.READ if group.member_count else Step.START
    return Step.STOP if group.member_count else Step.MOVE


def is_waiting(step: Step) -> bool:
    """True if the group cannot read the target yet."""
    return step not in (Step.MOVED, Step.OWN_OFFSETS)


def sentence(group: GroupFacts, step: Step, source: str, target: str) -> str:
    """Returns one sentence about the group, with what to do."""
    name, lag = f"group {group.group_id}", record_count(group.lag or 0)
    late = f"; {lag} came to {source} after the cut, and this group has not read them" if group.lag else ""
    return {
        Step.MOVE: f"{name} has read everything and is ready to move",
        Step.MOVED: f"{name} is moved: start its members on {target}{late}",
        Step.OWN_OFFSETS: f"{name} has offsets of its own in {target} and is left as it is",
        Step.STOP: f"{name} has read everything: stop its members",
        Step.READ: f"{name} has {lag} of {source} to read: wait until it has read them, and stop its members",
        Step.START: f"{name} has {lag} of {source} to read and no members: start it on {source}",
        Step.UNKNOWN: f"{name} has a lag that is not known now",
    }[step]
