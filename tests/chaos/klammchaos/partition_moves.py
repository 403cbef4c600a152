"""Faults that move replicas, or elect leaders on request, while clients use the partitions.

A partition of three replicas on three brokers moves by losing one replica and getting a new one, which copies all of
it.
"""

from __future__ import annotations

import asyncio

from tests.chaos.klammchaos.partition_cluster import BROKERS, PARTITIONS
from tests.chaos.klammchaos.partition_strike import EXCEPT_BYTES_MAX, Act, PartitionStrike, Victims

Placement = dict[int, list[int]]
"""The replicas of each partition, the preferred leader first."""


async def move_replicas(strike: PartitionStrike) -> None:
    await _shrink(strike, _on_any_two(strike))
    await _grow(strike)


def move_while_killing(victims: Victims) -> Act:
    """Returns an act that kills the victims with SIGKILL while replicas are copied."""

    async def act(strike: PartitionStrike) -> None:
        await _shrink(strike, _on_any_two(strike))
        grown = _on_all(strike)
        await strike.cluster.move(grown)
        killed = victims(strike)
        await asyncio.sleep(strike.rng.uniform(0, 0.5))
        await asyncio.to_thread(strike.cluster.kill, killed)
        await strike.hold()
        strike.cluster.restart(killed)
        await strike.cluster.wait_moved(grown)

    return act


async def cancel_move(strike: PartitionStrike) -> None:
    """Cancels a move to a frozen broker. When the broker runs again, makes the move."""
    late = strike.others[0]
    await _shrink(strike, {number: _shuffled(strike, {*BROKERS} - {late}) for number in range(PARTITIONS)})
    with strike.cluster.frozen([late]):
        await strike.cluster.move(_on_all(strike))
        await strike.hold()
        await strike.cluster.cancel_moves()
    await _grow(strike)


async def move_to_full_disk(strike: PartitionStrike) -> None:
    """Moves replicas to a broker whose disk is full. The disk has room again before anything else changes."""
    full = strike.others[0]
    await _shrink(strike, {number: _shuffled(strike, {*BROKERS} - {full}) for number in range(PARTITIONS)})
    grown = _on_all(strike)
    with strike.cluster.surroundings.full([full], strike.rng.randrange(EXCEPT_BYTES_MAX)):
        await strike.cluster.move(grown)
        await strike.hold()
    await strike.cluster.wait_moved(grown)


async def elect_leaders(strike: PartitionStrike) -> None:
    """Changes the order of the replicas and elects the preferred leaders, three times."""
    for _ in range(3):
        await _grow(strike)
        await strike.cluster.elect_preferred()
        await strike.hold((0.2, 1.0))


async def _shrink(strike: PartitionStrike, placement: Placement) -> None:
    await strike.cluster.move(placement)
    await strike.cluster.wait_moved(placement)


async def _grow(strike: PartitionStrike) -> None:
    placement = _on_all(strike)
    await strike.cluster.move(placement)
    await strike.cluster.wait_moved(placement)


def _on_any_two(strike: PartitionStrike) -> Placement:
    return {number: strike.rng.sample(BROKERS, 2) for number in range(PARTITIONS)}


def _on_all(strike: PartitionStrike) -> Placement:
    return {number: _shuffled(strike, {*BROKERS}) for number in range(PARTITIONS)}


def _shuffled(strike: PartitionStrike, brokers: set[int]) -> list[int]:
    return strike.rng.sample(sorted(brokers), len(brokers))
