"""The actions on a classic group after one of its writes has succeeded or failed. They are data, not callbacks."""

from __future__ import annotations

from dataclasses import dataclass

from klamm_coordinator.classic.member import ClassicMember


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentStored:
    """Follows the write of a generation's assignments. If they are stored, the group becomes Stable."""

    group_id: str
    generation_id: int
    assignments: dict[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticMemberStored:
    """Follows the write of a static member that returned under a new member id while its group is Stable (KIP-345)."""

    group_id: str
    generation_id: int
    member_id: str
    former: ClassicMember
    """The member before its return. The group restores it if the append fails."""
