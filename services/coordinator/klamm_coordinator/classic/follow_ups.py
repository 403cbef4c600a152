"""The actions on a classic group after one of its writes has succeeded or failed. They are data, not callbacks."""

from __future__ import annotations

from dataclasses import dataclass

from klamm_coordinator.classic.member import ClassicMember


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentStored:
    """The leader's assignments of a generation: once durable the group is Stable."""

    group_id: str
    generation_id: int
    assignments: dict[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticMemberStored:
    """A static member that came back under a new id while its group is Stable (KIP-345)."""

    group_id: str
    generation_id: int
    member_id: str
    former: ClassicMember
    """What it was, for the case that the append fails."""
