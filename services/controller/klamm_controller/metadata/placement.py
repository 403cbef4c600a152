"""Which brokers hold the replicas of new partitions: striped over the brokers, spread over the racks.

The live brokers form a ring in which racks alternate. Partition by partition the first replica moves one place
along the ring, so leaders are even to within one; the others follow it at a distance that grows with every full
turn, so the partitions of a failed broker do not all fall to its neighbour. A replica avoids the racks its
partition already uses while there are others. Fenced brokers get a replica only when the live ones do not
suffice, and never the first. (Kafka's StripedReplicaPlacer serves the same aims.)
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from klamm.errors import ErrorCode
from klamm_controller.metadata.decision import Refusal
from klamm_server.metadata.entities import BrokerImage


def place_replicas(
    brokers: Mapping[int, BrokerImage], partition_count: int, replication_factor: int, rng: random.Random
) -> list[tuple[int, ...]]:
    """The replicas of each of `partition_count` partitions, the preferred leader first.

    Raises Refusal(INVALID_REPLICATION_FACTOR) when the brokers do not suffice. The same `rng` state gives the
    same placement."""
    usable = [broker for broker in brokers.values() if not broker.in_controlled_shutdown]
    if replication_factor > len(usable):
        raise Refusal(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"the replication factor {replication_factor} is larger than the number of usable brokers, {len(usable)}",
        )
    live = _rack_ring((broker for broker in usable if not broker.fenced), rng)
    if not live:
        raise Refusal(ErrorCode.INVALID_REPLICATION_FACTOR, f"all {len(usable)} registered brokers are fenced")
    fenced = _rack_ring((broker for broker in usable if broker.fenced), rng)
    start = rng.randrange(len(live))
    followers = max(1, len(live) - 1)
    # The same first broker and the same distance give the same replicas.
    chosen: dict[tuple[int, int], tuple[int, ...]] = {}
    placed = []
    for step in range(start, start + partition_count):
        turn, first = divmod(step, len(live))
        shift = turn % followers
        replicas = chosen.get((first, shift))
        if replicas is None:
            replicas = chosen[first, shift] = _replicas_of(first, shift, live, fenced, replication_factor)
        placed.append(replicas)
    return placed


def _rack_ring(brokers: Iterable[BrokerImage], rng: random.Random) -> list[BrokerImage]:
    """The brokers in an order in which racks alternate for as long as they can."""
    by_rack: dict[str, list[BrokerImage]] = {}
    for broker in sorted(brokers, key=lambda broker: broker.broker_id):
        by_rack.setdefault(broker.rack, []).append(broker)
    racks = list(by_rack.values())
    rng.shuffle(racks)
    for rack in racks:
        rng.shuffle(rack)
    longest = max(map(len, racks), default=0)
    return [rack[row] for row in range(longest) for rack in racks if row < len(rack)]


def _replicas_of(
    first: int, shift: int, live: Sequence[BrokerImage], fenced: Sequence[BrokerImage], replication_factor: int
) -> tuple[int, ...]:
    followers = list(chain(live[first + 1 :], live[:first]))
    followers = followers[shift:] + followers[:shift]
    chosen = [live[first]]
    for group in (followers, fenced):
        _extend(chosen, group, replication_factor)
    return tuple(broker.broker_id for broker in chosen)


def _extend(chosen: list[BrokerImage], candidates: Sequence[BrokerImage], size: int) -> None:
    """Fills `chosen` up to `size`: first from racks it does not use yet, then from any."""
    for avoid_used_racks in (True, False):
        for broker in candidates:
            if len(chosen) == size:
                return
            used = avoid_used_racks and any(broker.rack == other.rack for other in chosen)
            if not used and broker not in chosen:
                chosen.append(broker)
