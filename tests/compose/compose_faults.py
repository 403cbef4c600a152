"""The faults of containers. Each kind of server is killed, stopped or paused, or loses its network or volume."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from tests.chaos.klammchaos.partition_cluster import BROKERS, CONTROLLERS
from tests.chaos.klammchaos.partition_strike import Act, PartitionFault, PartitionStrike
from tests.compose.compose_cluster import COORDINATORS, NEXT_IMAGE, ComposeCluster

HOLD_S: Final = (1.0, 2.0)
LONG_HOLD_S: Final = (10.0, 11.0)
"""Longer than a session."""

Victim = Callable[[PartitionStrike], int]


def _cluster(strike: PartitionStrike) -> ComposeCluster:
    assert isinstance(strike.cluster, ComposeCluster)
    return strike.cluster


def _leader(strike: PartitionStrike) -> int:
    return strike.leader


def _controller(strike: PartitionStrike) -> int:
    return strike.rng.choice(CONTROLLERS)


def _coordinator(strike: PartitionStrike) -> int:
    return strike.rng.choice(COORDINATORS)


def _kill(victim: Victim) -> Act:
    async def act(strike: PartitionStrike) -> None:
        killed = [victim(strike)]
        await asyncio.to_thread(strike.cluster.kill, killed)
        await strike.hold(HOLD_S)
        await asyncio.to_thread(strike.cluster.restart, killed)

    return act


def _pause(victim: Victim) -> Act:
    async def act(strike: PartitionStrike) -> None:
        with strike.cluster.frozen([victim(strike)]):
            await strike.hold(LONG_HOLD_S)

    return act


def _disconnect(victim: Victim) -> Act:
    async def act(strike: PartitionStrike) -> None:
        with _cluster(strike).disconnected(victim(strike)):
            await strike.hold(LONG_HOLD_S)

    return act


async def _roll(strike: PartitionStrike) -> None:
    """Upgrades all servers in the order of docs/how-to/upgrade-a-cluster.md, each after the previous one is healthy."""
    for node in (*CONTROLLERS, *BROKERS, *COORDINATORS):
        await asyncio.to_thread(_cluster(strike).upgrade, node, NEXT_IMAGE)
        await strike.cluster.wait_up()
        await strike.cluster.wait_whole()


async def _replace_volume(strike: PartitionStrike) -> None:
    await strike.cluster.wait_whole()
    await asyncio.to_thread(_cluster(strike).replace_volume, strike.leader)
    await strike.cluster.wait_up()
    await strike.cluster.wait_whole()


_VICTIMS: Final = {"broker that leads": _leader, "controller": _controller, "coordinator": _coordinator}
COMPOSE_FAULTS: Final[Sequence[PartitionFault]] = (
    *(PartitionFault(name=f"kill {name}", weight=1, strike=_kill(victim)) for name, victim in _VICTIMS.items()),
    *(PartitionFault(name=f"pause {name}", weight=1, strike=_pause(victim)) for name, victim in _VICTIMS.items()),
    *(
        PartitionFault(name=f"disconnect {name}", weight=1, strike=_disconnect(victim))
        for name, victim in _VICTIMS.items()
    ),
    PartitionFault(name="rolling upgrade of all", weight=1, strike=_roll),
    PartitionFault(name="broker's volume deleted", weight=1, strike=_replace_volume),
)
