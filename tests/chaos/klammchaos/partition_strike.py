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
"""A time that is longer than a broker's session, and longer than a follower may lag."""
GO_ON_S: Final = LONG_HOLD_S[0]
"""The longest time, in seconds, until others take over from a broker that has resigned. The fault lasts longer than
this."""
EXCEPT_BYTES_MAX: Final = 32 << 10
"""The largest space that a full disk may have left, in bytes. Some small writes still succeed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStrike:
    """One fault that is about to strike. `leader` is a broker that leads a partition."""

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
    """A fault of partitions. A round of all faults has it `weight` times."""

    name: str
    weight: int
    strike: Act
    fails_over: bool = False
    """Whether the leader dies and the others can take over."""
    needs: Means | None = None
    outage_max_s: float = math.inf
    """The longest outage that is allowed, because the others can take over while the fault lasts."""

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
