"""Chooses the brokers for the replicas of new partitions: striped over the brokers and spread over failure domains.

The live brokers form a ring in which the largest domains alternate, and within each of them the smaller domains. With
each partition, the first replica moves one place along the ring, so the numbers of leaders differ by at most one. The
other replicas follow the first one at a distance that grows with every full turn. So the partitions of a failed broker
do not all move to its neighbour. A replica avoids the hosts of its partition's other replicas while there are other
hosts. It goes to the largest domain with the fewest of these replicas, then to the next smaller one. Fenced brokers get
a replica only if there are too few live brokers, and never the first replica. Kafka's StripedReplicaPlacer has the same
aims for racks of one level.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from itertools import chain

from klamm.errors import ErrorCode
from klamm.failure_domains import crowding, level_names
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
    live = _ring([broker for broker in usable if not broker.fenced], rng)
    if not live:
        raise Refusal(ErrorCode.INVALID_REPLICATION_FACTOR, f"all {len(usable)} registered brokers are fenced")
    fenced = _ring([broker for broker in usable if broker.fenced], rng)
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


def _ring(brokers: Sequence[BrokerImage], rng: random.Random) -> list[BrokerImage]:
    """Returns the brokers in an order in which the domains of each level alternate for as long as they can."""
    ordered = sorted(brokers, key=lambda broker: broker.broker_id)
    return _alternating([(broker, level_names(broker.rack)) for broker in ordered], 0, rng)


def _alternating(
    brokers: Sequence[tuple[BrokerImage, Sequence[str]]], level: int, rng: random.Random
) -> list[BrokerImage]:
    """Returns the brokers of one domain, given with the names of their domains, so that the domains below it alternate.
    `level` is the level of these smaller domains."""
    below: dict[str, list[tuple[BrokerImage, Sequence[str]]]] = {}
    for broker, domains in brokers:
        below.setdefault("".join(domains[level : level + 1]), []).append((broker, domains))
    if set(below) <= {""} and level:
        alone = [broker for broker, _ in brokers]
        rng.shuffle(alone)
        return alone
    groups = list(below.values())
    rng.shuffle(groups)
    rings = [_alternating(group, level + 1, rng) for group in groups]
    longest = max(map(len, rings), default=0)
    return [ring[row] for row in range(longest) for ring in rings if row < len(ring)]


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
    """Adds candidates to `chosen` until it has `size` brokers or there are no more candidates. Each time, adds the
    first one in the least crowded domains."""
    left = [broker for broker in candidates if broker not in chosen]
    while left and len(chosen) < size:
        used = [broker.rack for broker in chosen]
        crowded = {rack: crowding(rack, used) for rack in {broker.rack for broker in left}}
        best = min(left, key=lambda broker: crowded[broker.rack])
        chosen.append(best)
        left.remove(best)
