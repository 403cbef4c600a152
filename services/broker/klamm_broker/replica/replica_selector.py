"""Chooses the replica that a consumer should read from (KIP-392), by `replica.selector.class`.

Kafka's `ReplicaSelector` and its `RackAwareReplicaSelector`. The leader calls the selector for each fetch of a consumer
that sends its rack. It passes only replicas that can serve the fetch: in sync, and with the offset in their logs. Kafka
loads any class by name. Klamm has Kafka's two selectors; `LeaderSelector` needs no code. Pure.
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
    """The last time when the replica had all records of the leader, in monotonic milliseconds."""


RackOf = Callable[[int], str | None]
"""Returns a broker's `broker.rack` ("" without one), or None if the broker is not alive."""
ReplicaSelector = Callable[[str, Sequence[ReplicaView]], ReplicaView | None]
"""Chooses a replica by the client's rack and the candidates. Returns None for the leader."""

_RACK_AWARE: Final = "RackAwareReplicaSelector"


def rack_aware_selector(rack_of: RackOf) -> ReplicaSelector:
    """Returns a selector that prefers the leader if it is in the client's rack. Otherwise it chooses the replica in
    that rack with the highest end offset, then the one that was caught up last."""

    def select(client_rack: str, replicas: Sequence[ReplicaView]) -> ReplicaView | None:
        nearby = [replica for replica in replicas if rack_of(replica.broker_id) == client_rack]
        return max(
            nearby, key=lambda one: (one.is_leader, one.end_offset, one.caught_up_ms, -one.broker_id), default=None
        )

    return select


def replica_selector(name: str | None, rack_of: RackOf) -> ReplicaSelector | None:
    """Returns the selector that `replica.selector.class` names, or None if consumers read from leaders."""
    return rack_aware_selector(rack_of) if name is not None and name.rpartition(".")[2] == _RACK_AWARE else None
