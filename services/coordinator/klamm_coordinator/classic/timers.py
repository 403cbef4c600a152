"""The timers of classic groups."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SessionTimer:
    """Due when a member, or a member id that has not joined yet, was silent for its session timeout."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class JoinTimer:
    """Due when the join phase of a rebalance has lasted long enough."""

    group_id: str


@dataclass(frozen=True, slots=True)
class SyncTimer:
    """Due when members of a new generation had long enough to ask for their assignment (KAFKA-12890)."""

    group_id: str
