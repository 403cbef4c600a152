"""The timers of consumer groups. Members of the classic protocol have join and sync timers, other members have
rebalance timers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ConsumerSessionTimer:
    """Fires if a member of the new protocol sent no heartbeat for group.consumer.session.timeout.ms."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class ConsumerRebalanceTimer:
    """Fires if a member of the new protocol has not revoked its partitions within its rebalance timeout."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class ConsumerJoinTimer:
    """Fires if a member of the classic protocol has not joined again within its rebalance timeout, after a heartbeat
    told it to."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class ConsumerSyncTimer:
    """Fires if a member of the classic protocol has not asked for its assignment within its rebalance timeout, after it
    has joined."""

    group_id: str
    member_id: str


ConsumerTimer = ConsumerSessionTimer | ConsumerRebalanceTimer | ConsumerJoinTimer | ConsumerSyncTimer
