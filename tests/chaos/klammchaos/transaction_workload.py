"""The workload "transactions". Workers copy one topic to another in transactions of random size, and abort some of them
on purpose. Meanwhile, faults strike brokers, controllers and coordinators.

These properties must hold (`transaction_checks`). A read_committed consumer gets exactly the input, each record once.
No consumer sees an aborted record. A producer that lost its transactional.id to another one is refused. After all
faults are healed, all of the input is processed.
"""

from __future__ import annotations

import asyncio
import pathlib
import random
import time
from collections import Counter
from collections.abc import Sequence
from typing import Final

from klamm import TopicPartition
from klamm.admin import NewTopic
from tests.chaos.klammchaos.nemesis import deal
from tests.chaos.klammchaos.node_cluster import NodeCluster
from tests.chaos.klammchaos.partition_cluster import BROKERS, DEADLINE_S, PARTITIONS
from tests.chaos.klammchaos.transaction_checks import violations
from tests.chaos.klammchaos.transaction_faults import (
    COORDINATORS,
    TRANSACTION_FAULTS,
    TransactionFault,
    TransactionStrike,
)
from tests.chaos.klammchaos.transaction_load import (
    INPUT,
    INPUT_PARTITIONS,
    Feeder,
    Observer,
    Worker,
    wait_until_processed,
)
from tests.support.violation import require

WORKERS: Final = 4
MIN_INSYNC_REPLICAS: Final = 2
PAUSE_S: Final = (0.3, 2.0)


def run(*, duration_s: float, seed: int, directory: pathlib.Path, only: str = "") -> None:
    """Runs the workload and prints its events. Only faults with `only` in their names strike. Raises AssertionError if
    a property does not hold."""
    asyncio.run(_Run(NodeCluster(directory, coordinators=COORDINATORS), seed, only).run(duration_s))


class _Run:
    def __init__(self, cluster: NodeCluster, seed: int, only: str) -> None:
        self._cluster = cluster
        self._rng = random.Random(seed)
        has_network = cluster.surroundings.has_network
        self._faults = [
            fault for fault in TRANSACTION_FAULTS if only in fault.name and (has_network or not fault.needs_network)
        ]
        assert self._faults, f"no fault that is possible here has {only!r} in its name"
        self._feeder = Feeder(cluster.bootstrap)
        self._workers = [
            Worker(number, cluster.bootstrap, random.Random(f"{seed}-{number}")) for number in range(WORKERS)
        ]
        self._observer = Observer(cluster.bootstrap)
        self._struck: list[tuple[TransactionFault, float]] = []

    async def run(self, duration_s: float) -> None:
        for reason in self._cluster.surroundings.missing:
            print(f"left out: {reason}", flush=True)
        try:
            await self._cluster.begin(MIN_INSYNC_REPLICAS)
            await self._create_input()
            await self._cluster.wait_whole()
            await self._load_and_strike(duration_s)
            await self._check(duration_s)
        except BaseException:
            await asyncio.to_thread(self._cluster.surroundings.save_disks)
            raise
        finally:
            await self._cluster.end()

    async def _create_input(self) -> None:
        configs = {"min.insync.replicas": str(MIN_INSYNC_REPLICAS)}
        topic = NewTopic(INPUT, partition_count=PARTITIONS, replication_factor=len(BROKERS), configs=configs)
        await self._cluster.admin.create_topics([topic])

    async def _load_and_strike(self, duration_s: float) -> None:
        fed, processed, written = asyncio.Event(), asyncio.Event(), asyncio.Event()
        feeder = asyncio.create_task(self._feeder.run(fed))
        workers = [asyncio.create_task(worker.run(processed)) for worker in self._workers]
        observer = asyncio.create_task(self._observer.run(written))
        strikes = asyncio.create_task(self._strike_until(time.monotonic() + duration_s))
        tasks = [feeder, *workers, observer, strikes]
        try:
            # A task of the load that ends before its event is set has failed.
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if strikes.done() and not strikes.exception():
                fed.set()
                await _ended([feeder], "feeder")
                waiting = asyncio.create_task(wait_until_processed(self._cluster.bootstrap))
                await asyncio.wait([waiting, *workers], return_when=asyncio.FIRST_COMPLETED)
                tasks.append(waiting)
                if waiting.done() and not waiting.exception():
                    processed.set()
                    await _ended(workers, "workers")
                    written.set()
                    await _ended([observer], "observer")
        finally:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
        for failure in ended:
            if isinstance(failure, Exception):
                raise failure

    async def _strike_until(self, until_s: float) -> None:
        begin_s = time.monotonic()
        await self._wait_for_commits(begin_s)
        for fault in deal(self._faults, self._rng):
            struck_s = time.monotonic()
            if struck_s >= until_s:
                return
            await fault.strike(TransactionStrike(cluster=self._cluster, rng=self._rng))
            self._cluster.expect_up()
            healed_s = time.monotonic()
            await self._wait_for_commits(healed_s)
            recovery_s = time.monotonic() - healed_s
            self._struck.append((fault, recovery_s))
            print(f"{struck_s - begin_s:7.2f} s  {fault.name}: commits again in {recovery_s:.3f} s", flush=True)
            self._cluster.check_running()
            await asyncio.sleep(self._rng.uniform(*PAUSE_S))

    async def _wait_for_commits(self, since_s: float) -> None:
        """Waits until input of every partition was committed after that moment, by any consumer. It therefore notices
        if a single consumer makes no progress. Raises AssertionError after DEADLINE_S."""
        until_s = time.monotonic() + DEADLINE_S
        while waiting := [tp for tp in INPUT_PARTITIONS if self._committed_s(tp) <= since_s]:
            self._cluster.check_running()
            assert time.monotonic() < until_s, (
                f"nothing is committed of {', '.join(map(str, waiting))} in {DEADLINE_S} s"
            )
            await asyncio.sleep(0.02)

    def _committed_s(self, tp: TopicPartition) -> float:
        return max(worker.committed_s.get(tp, 0.0) for worker in self._workers)

    async def _check(self, duration_s: float) -> None:
        final = Observer(self._cluster.bootstrap)
        now = asyncio.Event()
        now.set()
        await final.run(now)
        fates = {name: fate for worker in self._workers for name, fate in worker.fates.items()}
        counts = Counter(fate.value for fate in fates.values())
        slowest_s = max((recovery_s for _, recovery_s in self._struck), default=0)
        print(
            f"\n{len(self._struck)} faults in {duration_s:.0f} s; {self._feeder.count} inputs; transactions:"
            f" {', '.join(f'{count} {name}' for name, count in sorted(counts.items()))};"
            f" {sum(worker.zombies for worker in self._workers)} zombies refused; commits again after a fault in at"
            f" most {slowest_s:.3f} s",
            flush=True,
        )
        found = violations(final.seen, self._observer.seen, fates, self._feeder.count)
        require(not found, "\n".join(found))


async def _ended(tasks: Sequence[asyncio.Task[None]], whose: str) -> None:
    """Waits until all tasks have ended. Raises AssertionError after DEADLINE_S."""
    _, pending = await asyncio.wait(tasks, timeout=DEADLINE_S)
    assert not pending, f"{len(pending)} of {len(tasks)} {whose} did not end in {DEADLINE_S} s"
