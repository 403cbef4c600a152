"""The faults of a cluster that `klamm up` runs: they end the command itself, or drop packets by port."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from typing import Final

from tests.chaos.klammchaos.means import Means
from tests.chaos.klammchaos.partition_strike import (
    HOLD_S,
    LONG_HOLD_S,
    Act,
    PartitionFault,
    PartitionStrike,
    Victims,
    controller,
    leader,
)
from tests.chaos.klammchaos.port_cuts import Direction
from tests.chaos.klammchaos.up_cluster import UpCluster


def _cluster(strike: PartitionStrike) -> UpCluster:
    assert isinstance(strike.cluster, UpCluster)
    return strike.cluster


def _end_command(number: signal.Signals, expected: int) -> Act:
    """Returns an act that ends the command, and runs the same command again. It must find all data again."""

    async def act(strike: PartitionStrike) -> None:
        cluster = _cluster(strike)
        status = await asyncio.to_thread(cluster.end_command, number)
        assert status == expected, f"klamm up ended with status {status}, expected {expected}"
        await asyncio.to_thread(cluster.start)

    return act


def _cut(victims: Victims, *directions: Direction, for_s: tuple[float, float] = HOLD_S) -> Act:
    async def act(strike: PartitionStrike) -> None:
        cluster = _cluster(strike)
        assert cluster.cuts is not None
        with cluster.cuts.cut([cluster.ports[node] for node in victims(strike)], directions):
            await strike.hold(for_s)

    return act


def _cut_fault(name: str, strike: Act) -> PartitionFault:
    return PartitionFault(name=name, weight=1, strike=strike, needs=Means.PORTS)


UP_FAULTS: Final[Sequence[PartitionFault]] = (
    PartitionFault(name="kill -9 klamm up", weight=2, strike=_end_command(signal.SIGKILL, -9), needs=Means.COMMAND),
    PartitionFault(name="SIGTERM klamm up", weight=1, strike=_end_command(signal.SIGTERM, 0), needs=Means.COMMAND),
    _cut_fault("cut to leader's port", _cut(leader, "to")),
    _cut_fault("cut from leader's port", _cut(leader, "from")),
    _cut_fault("cut leader's port for long", _cut(leader, "to", "from", for_s=LONG_HOLD_S)),
    _cut_fault("cut to controller's port", _cut(controller, "to", for_s=LONG_HOLD_S)),
    _cut_fault("cut from controller's port", _cut(controller, "from", for_s=LONG_HOLD_S)),
)
