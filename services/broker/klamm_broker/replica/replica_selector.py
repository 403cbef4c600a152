"""Which replica a consumer should read from (KIP-392): `replica.selector.class`.

Kafka's `ReplicaSelector` and its `RackAwareReplicaSelector`. The leader asks it for each fetch of a consumer that
says in which rack it is, with those replicas that could serve it: in sync, and with the offset in their logs.
Kafka loads any class by its name; here are its two, of which `LeaderSelector` needs none. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple


class ReplicaView(NamedTuple):
    """A replica as its leader sees it."""

    broker_id: int
    is_leader: bool
    end_offset: int
    caught_up_ms: int
    """When it had all that the leader had, last."""


RackOf = Callable[[int], str | None]
"""A broker's `broker.rack`, or ""; None: it is not alive."""
ReplicaSelector = Callable[[str, Sequence[ReplicaView]], ReplicaView | None]
"""Chooses where to read, by the client's rack and the replicas; None: from the leader."""

_RACK_AWARE: Final = "RackAwareReplicaSelector"


def rack_aware_selector(rack_of: RackOf) -> ReplicaSelector:
    """The leader if it is in the client's rack, else the replica there that is furthest, and caught up last."""

    def select(client_rack: str, replicas: Sequence[ReplicaView]) -> ReplicaView | None:
        nearby = [replica for replica in replicas if rack_of(replica.broker_id) == client_rack]
        return max(
            nearby, key=lambda one: (one.is_leader, one.end_offset, one.caught_up_ms, -one.broker_id), default=None
        )

    return select


def replica_selector(name: str | None, rack_of: RackOf) -> ReplicaSelector | None:
    """The selector that `replica.selector.class` names; None: consumers read from leaders."""
    return rack_aware_selector(rack_of) if name is not None and name.rpartition(".")[2] == _RACK_AWARE else None
