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
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Final

from klamm.errors import ErrorCode
from klamm.failure_domains import crowding, level_names
from klamm_controller.metadata.decision import Refusal
from klamm_server.metadata.entities import BrokerImage

_KEPT_RACKS_MAX: Final = 2


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
    replicas_of = _Chooser(live, fenced, replication_factor).replicas_of
    placed = []
    for step in range(start, start + partition_count):
        turn, first = divmod(step, len(live))
        placed.append(replicas_of(first, turn % followers))
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


class _Chooser:
    """Chooses the replicas of partitions. Partitions with the same first broker and distance have the same replicas, so
    they are chosen once."""

    def __init__(self, live: Sequence[BrokerImage], fenced: Sequence[BrokerImage], replication_factor: int) -> None:
        self._live = live
        self._fenced = fenced
        self._size = replication_factor
        self._racks = [Counter(broker.rack for broker in ring) for ring in (live, fenced)]
        self._chosen: dict[tuple[int, int], tuple[int, ...]] = {}
        self._crowded: dict[tuple[str, ...], dict[str, tuple[int, ...]]] = {}
        """How crowded each rack is, by the racks of the other replicas."""

    def replicas_of(self, first: int, shift: int) -> tuple[int, ...]:
        """Returns the replicas of a partition. The first one is at the index `first` of the ring. The followers are
        searched in the rest of the ring, from the distance `shift` on."""
        found = self._chosen.get((first, shift))
        if found is None:
            followers = list(chain(self._live[first + 1 :], self._live[:first]))
            followers = followers[shift:] + followers[:shift]
            chosen = [self._live[first]]
            self._extend(chosen, followers, self._racks[0] - Counter([chosen[0].rack]))
            self._extend(chosen, self._fenced, self._racks[1].copy())
            found = self._chosen[first, shift] = tuple(broker.broker_id for broker in chosen)
        return found

    def _extend(self, chosen: list[BrokerImage], candidates: Sequence[BrokerImage], left: Counter[str]) -> None:
        """Adds candidates until there are enough brokers, or no more candidates. Each time, adds the first one in the
        least crowded domains. `left` has the number of candidates in each rack."""
        while left and len(chosen) < self._size:
            crowded = self._crowded_by(tuple(broker.rack for broker in chosen))
            least = min(crowded[rack] for rack in left)
            best = next(broker for broker in candidates if crowded[broker.rack] == least and broker not in chosen)
            chosen.append(best)
            left -= Counter([best.rack])

    def _crowded_by(self, used: tuple[str, ...]) -> dict[str, tuple[int, ...]]:
        found = self._crowded.get(used)
        if found is None:
            racks = self._racks[0] | self._racks[1]
            found = {rack: crowding(rack, used) for rack in racks}
            # The racks of more replicas seldom repeat, so keeping them would only take memory.
            if len(used) <= _KEPT_RACKS_MAX:
                self._crowded[used] = found
        return found
