"""The faults of a controller quorum: each strikes, holds for a while, and heals what it struck."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tests.chaos.klammchaos.quorum_cluster import NODE_IDS, QuorumCluster

HOLD_S: Final = (0.3, 2.5)
LONG_HOLD_S: Final = (10.0, 14.0)
"""A time after which the other controllers have deleted old entries, so that the leader sends a snapshot to a
controller that returns."""
EXCEPT_BYTES_MAX: Final = 16 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Strike:
    """One fault that is about to strike."""

    cluster: QuorumCluster
    leader: int
    followers: tuple[int, int]
    """The followers, in random order."""
    rng: random.Random

    async def hold(self, for_s: tuple[float, float] = HOLD_S) -> None:
        await asyncio.sleep(self.rng.uniform(*for_s))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault of a controller quorum. A round of all faults has it `weight` times."""

    name: str
    weight: int
    strike: Callable[[Strike], Awaitable[None]]
    fails_over: bool = False
    """Whether the leader is lost and the others can elect another one. The time without answers is then that of a
    fail-over."""
    needs_disks: bool = False
    needs_network: bool = False


def _leader(strike: Strike) -> list[int]:
    return [strike.leader]


def _follower(strike: Strike) -> list[int]:
    return [strike.followers[0]]


def _majority(strike: Strike) -> list[int]:
    return [strike.leader, strike.followers[0]]


def _all(strike: Strike) -> list[int]:
    return list(NODE_IDS)


Victims = Callable[[Strike], list[int]]


def _kill(victims: Victims, for_s: tuple[float, float] = HOLD_S) -> Callable[[Strike], Awaitable[None]]:
    async def act(strike: Strike) -> None:
        killed = victims(strike)
        await asyncio.to_thread(strike.cluster.kill, killed)
        await strike.hold(for_s)
        strike.cluster.restart(killed)

    return act


async def _stop_leader(strike: Strike) -> None:
    await asyncio.to_thread(strike.cluster.stop, strike.leader)
    await strike.hold()
    strike.cluster.restart([strike.leader])


def _freeze(victims: Victims) -> Callable[[Strike], Awaitable[None]]:
    async def act(strike: Strike) -> None:
        with strike.cluster.frozen(victims(strike)):
            await strike.hold()

    return act


def _fill(victims: Victims) -> Callable[[Strike], Awaitable[None]]:
    async def act(strike: Strike) -> None:
        with strike.cluster.surroundings.full(victims(strike), strike.rng.randrange(EXCEPT_BYTES_MAX)):
            await strike.hold()

    return act


async def _fill_and_kill_leader(strike: Strike) -> None:
    """Fills the leader's disk and kills the leader. It may refuse to start without space. With space, it must have its
    old state again."""
    killed = [strike.leader]
    with strike.cluster.surroundings.full(killed, strike.rng.randrange(EXCEPT_BYTES_MAX)):
        await asyncio.sleep(strike.rng.uniform(0, 0.5))
        await asyncio.to_thread(strike.cluster.kill, killed)
        strike.cluster.restart(killed)
        await strike.hold()
    strike.cluster.restart(killed)


def _cut(links: Callable[[Strike], list[tuple[int, int]]]) -> Callable[[Strike], Awaitable[None]]:
    async def act(strike: Strike) -> None:
        with strike.cluster.surroundings.cut(links(strike)):
            await strike.hold()

    return act


def _from_leader(strike: Strike) -> list[tuple[int, int]]:
    return [(strike.leader, follower) for follower in strike.followers]


def _to_leader(strike: Strike) -> list[tuple[int, int]]:
    return [(follower, strike.leader) for follower in strike.followers]


def _both_ways(strike: Strike) -> list[tuple[int, int]]:
    return _from_leader(strike) + _to_leader(strike)


def _one_cable(strike: Strike) -> list[tuple[int, int]]:
    """Cuts the link between the leader and one follower, in both directions. The other follower reaches both."""
    return [(strike.leader, strike.followers[0]), (strike.followers[0], strike.leader)]


def _any_links(strike: Strike) -> list[tuple[int, int]]:
    links = [(a, b) for a in NODE_IDS for b in NODE_IDS if a != b]
    return strike.rng.sample(links, strike.rng.randint(1, len(links)))


async def _nothing(strike: Strike) -> None:
    await strike.hold()


FAULTS: Final[Sequence[Fault]] = (
    Fault(name="nothing", weight=1, strike=_nothing),
    Fault(name="kill -9 leader", weight=5, strike=_kill(_leader), fails_over=True),
    Fault(name="kill -9 follower", weight=1, strike=_kill(_follower)),
    Fault(name="kill -9 follower for long", weight=1, strike=_kill(_follower, LONG_HOLD_S)),
    Fault(name="kill -9 majority", weight=1, strike=_kill(_majority)),
    Fault(name="kill -9 all", weight=1, strike=_kill(_all)),
    Fault(name="SIGTERM leader", weight=1, strike=_stop_leader),
    Fault(name="SIGSTOP leader", weight=2, strike=_freeze(_leader), fails_over=True),
    Fault(name="SIGSTOP follower", weight=1, strike=_freeze(_follower)),
    Fault(name="SIGSTOP majority", weight=1, strike=_freeze(_majority)),
    Fault(name="full disk leader", weight=2, strike=_fill(_leader), fails_over=True, needs_disks=True),
    Fault(name="full disk follower", weight=1, strike=_fill(_follower), needs_disks=True),
    Fault(name="full disk all", weight=1, strike=_fill(_all), needs_disks=True),
    Fault(name="full disk, kill -9 leader", weight=1, strike=_fill_and_kill_leader, fails_over=True, needs_disks=True),
    Fault(name="cut leader off", weight=2, strike=_cut(_both_ways), fails_over=True, needs_network=True),
    Fault(name="cut from leader", weight=1, strike=_cut(_from_leader), fails_over=True, needs_network=True),
    Fault(name="cut to leader", weight=1, strike=_cut(_to_leader), fails_over=True, needs_network=True),
    Fault(name="cut one cable", weight=1, strike=_cut(_one_cable), needs_network=True),
    Fault(name="cut any links", weight=1, strike=_cut(_any_links), needs_network=True),
)
