"""The timers of classic groups."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SessionTimer:
    """A member (or a pending one) was silent for its session timeout."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class JoinTimer:
    """The join phase of a rebalance has lasted long enough."""

    group_id: str


@dataclass(frozen=True, slots=True)
class SyncTimer:
    """Members of a new generation had long enough to ask for their assignment (KAFKA-12890)."""

    group_id: str
