"""Chooses the replica that a consumer should read from (KIP-392), by `replica.selector.class`.

Kafka's `ReplicaSelector` and its `RackAwareReplicaSelector`. The leader calls the selector for each fetch of a consumer
that sends its rack. It passes only replicas that can serve the fetch: in sync, and with the offset in their logs. Kafka
loads any class by name. Klamm has Kafka's two selectors; `LeaderSelector` needs no code. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from klamm.failure_domains import nearness


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
    """Returns a selector of a replica in the client's rack. If there is none, it chooses one that shares the most
    levels of the client's path, at least one. Among equals it prefers the leader, then the replica with the highest end
    offset, then the one that was caught up last."""

    def select(client_rack: str, replicas: Sequence[ReplicaView]) -> ReplicaView | None:
        near = [(nearness(client_rack, rack_of(replica.broker_id) or ""), replica) for replica in replicas]
        levels, chosen = max(
            near,
            key=lambda candidate: (
                candidate[0],
                candidate[1].is_leader,
                candidate[1].end_offset,
                candidate[1].caught_up_ms,
                -candidate[1].broker_id,
            ),
            default=(0, None),
        )
        return chosen if levels else None

    return select


def replica_selector(name: str | None, rack_of: RackOf) -> ReplicaSelector | None:
    """Returns the selector that `replica.selector.class` names, or None if consumers read from leaders."""
    return rack_aware_selector(rack_of) if name is not None and name.rpartition(".")[2] == _RACK_AWARE else None
