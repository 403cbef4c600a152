"""The timers of consumer groups."""

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
