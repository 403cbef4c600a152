"""The arguments of a fault of partitions, and the choice of its victims."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from tests.chaos.klammchaos.means import Means
from tests.chaos.klammchaos.partition_cluster import BROKERS, CONTROLLERS, PartitionCluster

HOLD_S: Final = (0.5, 4.0)
LONG_HOLD_S: Final = (10.0, 14.0)
"""Longer than a broker's session, and than a follower may lag."""
GO_ON_S: Final = LONG_HOLD_S[0]
"""The seconds that others may need to take over from a broker that says that it cannot go on: it cannot for longer."""
EXCEPT_BYTES_MAX: Final = 32 << 10
"""The most bytes that a full disk has left: some writes succeed yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStrike:
    """One fault that is about to strike. `leader` leads some partition."""

    cluster: PartitionCluster
    leader: int
    others: tuple[int, int]
    """The other brokers, in random order."""
    rng: random.Random

    async def hold(self, for_s: tuple[float, float] = HOLD_S) -> None:
        await asyncio.sleep(self.rng.uniform(*for_s))


Victims = Callable[[PartitionStrike], list[int]]
Act = Callable[[PartitionStrike], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFault:
    """`weight` is how often it comes in a round of all."""

    name: str
    weight: int
    strike: Act
    fails_over: bool = False
    """The leader dies, and the others can go on."""
    needs: Means | None = None
    outage_max_s: float = math.inf
    """The others can go on that soon, though the fault lasts."""

    def is_possible(self, cluster: PartitionCluster) -> bool:
        return self.needs is None or self.needs in cluster.means


def leader(strike: PartitionStrike) -> list[int]:
    return [strike.leader]


def follower(strike: PartitionStrike) -> list[int]:
    return [strike.others[0]]


def two_brokers(strike: PartitionStrike) -> list[int]:
    return [strike.leader, strike.others[0]]


def every_broker(strike: PartitionStrike) -> list[int]:
    return list(BROKERS)


def controller(strike: PartitionStrike) -> list[int]:
    return [strike.rng.choice(CONTROLLERS)]
