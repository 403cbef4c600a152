"""Chooses the brokers for the replicas of new partitions: striped over the brokers and spread over the racks.

The live brokers form a ring in which the racks alternate. With each partition, the first replica moves one place along
the ring, so the numbers of leaders differ by at most one. The other replicas follow the first one at a distance that
grows with every full turn. So the partitions of a failed broker do not all move to its neighbour. A replica avoids the
racks of its partition's other replicas while there are other racks. Fenced brokers get a replica only if there are too
few live brokers, and never the first replica. Kafka's StripedReplicaPlacer has the same aims.
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
    """Returns the replicas of each of `partition_count` partitions, the preferred leader first.

    Raises Refusal(INVALID_REPLICATION_FACTOR) if there are too few brokers. The same `rng` state gives the same
    placement."""
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
    # The replicas depend only on the first broker and the distance, so compute them once.
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
    """Returns the brokers in an order in which the racks alternate for as long as they can."""
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
    """Adds candidates to `chosen` until it has `size` brokers: first from racks that it does not use yet, then from
    any."""
    for avoid_used_racks in (True, False):
        for broker in candidates:
            if len(chosen) == size:
                return
            used = avoid_used_racks and any(broker.rack == other.rack for other in chosen)
            if not used and broker not in chosen:
                chosen.append(broker)
