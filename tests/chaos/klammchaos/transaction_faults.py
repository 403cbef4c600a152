"""The faults of the workload "transactions". They strike partitions and coordinators."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tests.chaos.klammchaos.network import Link
from tests.chaos.klammchaos.partition_cluster import BROKERS, CONTROLLERS, PartitionCluster
from tests.chaos.klammchaos.partition_strike import HOLD_S, LONG_HOLD_S

COORDINATORS: Final = (21, 22, 23)
"""The nodes of the coordinators. They are also their ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionStrike:
    """One fault that is about to strike."""

    cluster: PartitionCluster
    rng: random.Random

    async def hold(self, for_s: tuple[float, float] = HOLD_S) -> None:
        await asyncio.sleep(self.rng.uniform(*for_s))


Victims = Callable[[random.Random], list[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionFault:
    """A fault of the workload "transactions". A round of all faults has it `weight` times."""

    name: str
    weight: int
    strike: Callable[[TransactionStrike], Awaitable[None]]
    needs_network: bool = False


def _one_of(nodes: Sequence[int]) -> Victims:
    return lambda rng: [rng.choice(nodes)]


def _all_of(nodes: Sequence[int]) -> Victims:
    return lambda _: list(nodes)


def _kill(victims: Victims, for_s: tuple[float, float] = HOLD_S) -> Callable[[TransactionStrike], Awaitable[None]]:
    async def strike(strike: TransactionStrike) -> None:
        killed = victims(strike.rng)
        await asyncio.to_thread(strike.cluster.kill, killed)
        await strike.hold(for_s)
        strike.cluster.restart(killed)

    return strike


def _stop(victims: Victims) -> Callable[[TransactionStrike], Awaitable[None]]:
    async def strike(strike: TransactionStrike) -> None:
        for node in victims(strike.rng):
            await strike.cluster.wait_serving(node)
            await asyncio.to_thread(strike.cluster.stop, node)
            strike.cluster.restart([node])

    return strike


def _freeze(victims: Victims, for_s: tuple[float, float] = HOLD_S) -> Callable[[TransactionStrike], Awaitable[None]]:
    async def strike(strike: TransactionStrike) -> None:
        with strike.cluster.frozen(victims(strike.rng)):
            await strike.hold(for_s)

    return strike


def _cut_off(
    victims: Victims, others: Sequence[int], for_s: tuple[float, float]
) -> Callable[[TransactionStrike], Awaitable[None]]:
    """Returns a strike that cuts the victims off from `others`. Clients still reach the victims."""

    async def strike(strike: TransactionStrike) -> None:
        cut = victims(strike.rng)
        links: list[Link] = [
            link for one in cut for other in others if one != other for link in ((one, other), (other, one))
        ]
        with strike.cluster.surroundings.cut(links):
            await strike.hold(for_s)

    return strike


_COORDINATOR: Final = _one_of(COORDINATORS)
_BROKER: Final = _one_of(BROKERS)
_CONTROLLER: Final = _one_of(CONTROLLERS)

TRANSACTION_FAULTS: Final[Sequence[TransactionFault]] = (
    TransactionFault(name="kill -9 coordinator", weight=4, strike=_kill(_COORDINATOR)),
    TransactionFault(name="kill -9 coordinator for long", weight=1, strike=_kill(_COORDINATOR, LONG_HOLD_S)),
    TransactionFault(name="kill -9 all coordinators", weight=1, strike=_kill(_all_of(COORDINATORS))),
    TransactionFault(name="SIGTERM coordinator", weight=2, strike=_stop(_COORDINATOR)),
    TransactionFault(name="SIGSTOP coordinator", weight=1, strike=_freeze(_COORDINATOR)),
    TransactionFault(name="SIGSTOP coordinator for long", weight=2, strike=_freeze(_COORDINATOR, LONG_HOLD_S)),
    TransactionFault(name="kill -9 broker", weight=3, strike=_kill(_BROKER)),
    TransactionFault(name="kill -9 all brokers", weight=1, strike=_kill(_all_of(BROKERS))),
    TransactionFault(name="SIGTERM broker", weight=1, strike=_stop(_BROKER)),
    TransactionFault(name="SIGSTOP broker for long", weight=1, strike=_freeze(_BROKER, LONG_HOLD_S)),
    TransactionFault(name="kill -9 controller", weight=1, strike=_kill(_CONTROLLER)),
    TransactionFault(
        name="cut coordinator off for long",
        weight=2,
        strike=_cut_off(_COORDINATOR, (*CONTROLLERS, *BROKERS, *COORDINATORS), LONG_HOLD_S),
        needs_network=True,
    ),
    TransactionFault(
        name="cut coordinator from brokers",
        weight=1,
        strike=_cut_off(_COORDINATOR, BROKERS, HOLD_S),
        needs_network=True,
    ),
    TransactionFault(
        name="cut broker off for long",
        weight=1,
        strike=_cut_off(_BROKER, (*CONTROLLERS, *BROKERS, *COORDINATORS), LONG_HOLD_S),
        needs_network=True,
    ),
)
