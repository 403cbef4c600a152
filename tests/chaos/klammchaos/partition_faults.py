"""The faults of partitions: each strikes, holds for a while, and heals what it struck."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from klammchaos.network import Link
from klammchaos.partition_cluster import BROKERS, CONTROLLERS, PartitionCluster

HOLD_S: Final = (0.5, 4.0)
LONG_HOLD_S: Final = (10.0, 14.0)
"""Longer than a broker's session, and than a follower may lag."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStrike:
    """One fault about to be; `leader` leads some partition."""

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
    needs_network: bool = False


def _leader(strike: PartitionStrike) -> list[int]:
    return [strike.leader]


def _follower(strike: PartitionStrike) -> list[int]:
    return [strike.others[0]]


def _two(strike: PartitionStrike) -> list[int]:
    return [strike.leader, strike.others[0]]


def _all(strike: PartitionStrike) -> list[int]:
    return list(BROKERS)


def _controller(strike: PartitionStrike) -> list[int]:
    return [strike.rng.choice(CONTROLLERS)]


def _kill(victims: Victims, for_s: tuple[float, float] = HOLD_S) -> Act:
    async def act(strike: PartitionStrike) -> None:
        killed = victims(strike)
        await asyncio.to_thread(strike.cluster.kill, killed)
        await strike.hold(for_s)
        strike.cluster.restart(killed)

    return act


async def _stop_leader(strike: PartitionStrike) -> None:
    await asyncio.to_thread(strike.cluster.stop, strike.leader)
    strike.cluster.restart([strike.leader])


async def _roll(strike: PartitionStrike) -> None:
    """A rolling restart of all brokers."""
    for broker in (strike.leader, *strike.others):
        await asyncio.to_thread(strike.cluster.stop, broker)
        strike.cluster.restart([broker])
        await strike.cluster.wait_whole()


def _freeze(victims: Victims, for_s: tuple[float, float] = HOLD_S) -> Act:
    async def act(strike: PartitionStrike) -> None:
        with strike.cluster.frozen(victims(strike)):
            await strike.hold(for_s)

    return act


def _cut(links: Callable[[PartitionStrike], list[Link]], for_s: tuple[float, float] = HOLD_S) -> Act:
    async def act(strike: PartitionStrike) -> None:
        with strike.cluster.cut(links(strike)):
            await strike.hold(for_s)

    return act


def _between(ones: Sequence[int], others: Sequence[int]) -> list[Link]:
    return [link for one in ones for other in others for link in ((one, other), (other, one))]


def _followers(strike: PartitionStrike) -> list[Link]:
    return _between([strike.leader], strike.others)


def _controllers(strike: PartitionStrike) -> list[Link]:
    return _between([strike.leader], CONTROLLERS)


def _everybody(strike: PartitionStrike) -> list[Link]:
    """Clients still reach it."""
    return _followers(strike) + _controllers(strike)


def _any_links(strike: PartitionStrike) -> list[Link]:
    nodes = [*CONTROLLERS, *BROKERS]
    links = [(one, other) for one in nodes for other in nodes if one != other]
    return strike.rng.sample(links, strike.rng.randint(1, len(links) // 2))


async def _nothing(strike: PartitionStrike) -> None:
    await strike.hold()


PARTITION_FAULTS: Final[Sequence[PartitionFault]] = (
    PartitionFault(name="nothing", weight=1, strike=_nothing),
    PartitionFault(name="kill -9 leader", weight=3, strike=_kill(_leader), fails_over=True),
    PartitionFault(name="kill -9 leader for long", weight=1, strike=_kill(_leader, LONG_HOLD_S), fails_over=True),
    PartitionFault(name="kill -9 follower", weight=1, strike=_kill(_follower)),
    PartitionFault(name="kill -9 two brokers", weight=1, strike=_kill(_two)),
    PartitionFault(name="kill -9 all brokers", weight=1, strike=_kill(_all)),
    PartitionFault(name="kill -9 controller", weight=1, strike=_kill(_controller)),
    PartitionFault(name="SIGTERM leader", weight=2, strike=_stop_leader),
    PartitionFault(name="rolling restart", weight=1, strike=_roll),
    PartitionFault(name="SIGSTOP leader", weight=2, strike=_freeze(_leader)),
    PartitionFault(name="SIGSTOP leader for long", weight=2, strike=_freeze(_leader, LONG_HOLD_S)),
    PartitionFault(name="SIGSTOP follower", weight=1, strike=_freeze(_follower)),
    PartitionFault(name="SIGSTOP two brokers", weight=1, strike=_freeze(_two)),
    PartitionFault(name="SIGSTOP controller", weight=1, strike=_freeze(_controller)),
    PartitionFault(name="cut leader from followers", weight=2, strike=_cut(_followers), needs_network=True),
    PartitionFault(
        name="cut leader from controllers for long",
        weight=2,
        strike=_cut(_controllers, LONG_HOLD_S),
        needs_network=True,
    ),
    PartitionFault(name="cut leader off for long", weight=2, strike=_cut(_everybody, LONG_HOLD_S), needs_network=True),
    PartitionFault(name="cut any links", weight=2, strike=_cut(_any_links), needs_network=True),
)
