"""The workload "spark": two queries write exactly once, while faults kill their processes and the cluster's servers.

The faults strike tasks, executors and drivers too. These properties must hold (`spark_checks`). In the end, a
read_committed consumer gets the input, each number once. It gets each hour of the flights once, with the figures that
pandas computes. No transaction is left open.
"""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import random
import time
from collections import Counter
from collections.abc import Awaitable
from typing import Final

import pandas as pd

from klamm.admin import NewTopic
from klamm.errors import KlammError
from tests.chaos.klammchaos.nemesis import deal
from tests.chaos.klammchaos.node_cluster import NodeCluster
from tests.chaos.klammchaos.partition_cluster import BROKERS, DEADLINE_S, PARTITIONS
from tests.chaos.klammchaos.spark_checks import copy_violations, delay_violations
from tests.chaos.klammchaos.spark_driver import COPIES, DELAYS, FLIGHTS, NUMBERS
from tests.chaos.klammchaos.spark_faults import COORDINATORS, SPARK_FAULTS, SparkFault, SparkStrike
from tests.chaos.klammchaos.spark_load import Feeder, Observer, expected_delays, flights_of, read_committed
from tests.chaos.klammchaos.spark_program import SparkProgram
from tests.support.violation import require

MIN_INSYNC_REPLICAS: Final = 2
PAUSE_S: Final = (0.2, 2.0)
HASTE_PROBABILITY: Final = 0.6
"""The probability that the next fault strikes before the queries have recovered from the last one."""
RECOVERY_S: Final = 600.0
"""The longest recovery time, on a machine that has other work too. The start of a driver alone takes half a minute
there."""


def run(*, duration_s: float, seed: int, directory: pathlib.Path, only: str = "", kills: int = 0) -> None:
    """Runs the workload and prints its events. Faults with `only` in their names strike for `duration_s`, and until
    they have killed `kills` processes. Raises AssertionError if a property does not hold."""
    cluster = NodeCluster(directory, coordinators=COORDINATORS)
    asyncio.run(_Run(cluster, directory, seed, only, duration_s).run(kills))


class _Run:
    def __init__(self, cluster: NodeCluster, directory: pathlib.Path, seed: int, only: str, duration_s: float) -> None:
        self._cluster = cluster
        self._rng = random.Random(seed)
        self._faults = [fault for fault in SPARK_FAULTS if only in fault.name]
        assert self._faults, f"no fault has {only!r} in its name"
        self._duration_s = duration_s
        self._flights: pd.DataFrame = flights_of(duration_s)
        self._feeder = Feeder(cluster.bootstrap, self._flights, duration_s)
        self._observer = Observer(cluster.bootstrap)
        self._program = SparkProgram(cluster.bootstrap, directory)
        self._struck: Counter[str] = Counter()
        self._recoveries_s: list[float] = []
        self._kills = 0

    async def run(self, kills: int) -> None:
        for reason in self._cluster.surroundings.missing:
            print(f"left out: {reason}", flush=True)
        try:
            await self._cluster.begin(MIN_INSYNC_REPLICAS)
            await self._create_topics()
            await self._load_and_strike(kills)
            await self._check()
        except BaseException:
            await asyncio.to_thread(self._cluster.surroundings.save_disks)
            raise
        finally:
            await self._program.close()
            await self._cluster.end()

    async def _create_topics(self) -> None:
        configs = {"min.insync.replicas": str(MIN_INSYNC_REPLICAS)}
        await self._cluster.admin.create_topics(
            [
                NewTopic(name, partition_count=PARTITIONS, replication_factor=len(BROKERS), configs=configs)
                for name in (NUMBERS, COPIES, FLIGHTS, DELAYS)
            ]
        )

    async def _load_and_strike(self, kills: int) -> None:
        stop = asyncio.Event()
        feeder = asyncio.create_task(self._feeder.run(stop))
        background = [
            asyncio.create_task(self._program.supervise()),
            asyncio.create_task(self._observer.run()),
        ]
        try:
            await self._first_to_end(self._strike(kills), feeder, *background)
            stop.set()
            await self._first_to_end(asyncio.wait_for(asyncio.shield(feeder), DEADLINE_S), *background)
            await self._first_to_end(self._wait_for_output(), *background)
        finally:
            tasks = [feeder, *background]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _first_to_end(self, work: Awaitable[None], *others: asyncio.Task[None]) -> None:
        """Waits until `work` has ended. Raises an error if another task ends before that."""
        working = asyncio.ensure_future(work)
        try:
            await asyncio.wait([working, *others], return_when=asyncio.FIRST_COMPLETED)
            for task in (working, *others):
                if task.done():
                    task.result()
            assert working.done(), "somebody of the load ended before its time"
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)

    async def _strike(self, kills: int) -> None:
        await self._recover(time.monotonic())
        begin_s = self._feeder.begin_s = time.monotonic()
        until_s = begin_s + self._duration_s
        for fault in deal(self._faults, self._rng):
            struck_s = time.monotonic()
            if struck_s >= until_s and self._kills >= kills:
                return
            await self._strike_once(fault)
            line = f"{struck_s - begin_s:7.2f} s  {fault.name}: kills {self._kills}"
            if self._rng.random() >= HASTE_PROBABILITY:
                healed_s = time.monotonic()
                await self._recover(healed_s)
                self._recoveries_s.append(time.monotonic() - healed_s)
                line += f", writes again in {self._recoveries_s[-1]:.1f} s"
            print(line, flush=True)
            self._cluster.check_running()
            await asyncio.sleep(self._rng.uniform(*PAUSE_S))

    async def _strike_once(self, fault: SparkFault) -> None:
        strike = SparkStrike(cluster=self._cluster, program=self._program, rng=self._rng)
        try:
            await fault.strike(strike)
        finally:
            strike.heal()
        self._cluster.expect_up()
        self._kills += strike.kills
        self._struck[fault.name] += 1

    async def _recover(self, since_s: float) -> None:
        """Waits until the output has a number that was fed after this call. Raises AssertionError after RECOVERY_S."""
        fed = self._feeder.count
        while self._observer.highest < fed:
            self._cluster.check_running()
            assert time.monotonic() - since_s < RECOVERY_S, (
                f"no output for {RECOVERY_S} s, {self._observer.highest} of {fed} is there:\n{self._program.log_end()}"
            )
            await asyncio.sleep(0.05)

    async def _wait_for_output(self) -> None:
        """Waits until the output of everything that was fed is written. Raises AssertionError after RECOVERY_S."""
        until_s = time.monotonic() + RECOVERY_S
        found = ["nobody could be asked"]
        while found:
            assert time.monotonic() < until_s, "\n".join(found)
            await asyncio.sleep(2.0)
            with contextlib.suppress(KlammError):
                found = await self._violations()

    async def _check(self) -> None:
        """Checks the output again after the program has ended, so that late output is not overlooked."""
        await self._program.close()
        found = await self._violations()
        copies, hours = self._feeder.count, len(expected_delays(self._flights))
        print(
            f"\n{sum(self._struck.values())} faults killed {self._kills} processes; the program was started"
            f" {self._program.starts} times; {copies} numbers copied, {len(self._flights)} flights in {hours} hours"
            f" of airports; writes again after a fault in {_spread(self._recoveries_s)}",
            flush=True,
        )
        for name, count in sorted(self._struck.items()):
            print(f"  {count:3} x {name}")
        require(not found, "\n".join(found))
        print("0 lost, 0 written twice, every figure is what pandas computes", flush=True)

    async def _violations(self) -> list[str]:
        copies = await read_committed(self._cluster.bootstrap, COPIES)
        delays = await read_committed(self._cluster.bootstrap, DELAYS)
        return [
            *copy_violations((int(record.value or b"-1") for record in copies), self._feeder.count),
            *delay_violations([record.value or b"" for record in delays], expected_delays(self._flights)),
        ]


def _spread(values: list[float]) -> str:
    ordered = sorted(values) or [0.0]
    return f"{ordered[len(ordered) // 2]:.1f} s (median), {ordered[-1]:.1f} s at most"
