"""The workload "retention". A topic keeps records for seconds, and waits for two groups, which are away for longer. A
third group was deleted at the beginning. Meanwhile, faults strike brokers, controllers and coordinators.

These properties must hold (`retention_checks`). Each group reads every acknowledged record, in order and without a gap.
After all faults are healed and both groups have read everything, every replica deletes all records. So the coordinators
must not forget the deletion of the third group.
"""

from __future__ import annotations

import asyncio
import pathlib
import random
import time
from typing import Final

from klamm.admin import ConfigChange, ConfigResource, ConfigResourceType
from klamm.errors import KlammError
from tests.chaos.klammchaos.nemesis import deal
from tests.chaos.klammchaos.node_cluster import NodeCluster
from tests.chaos.klammchaos.partition_cluster import BROKERS, DEADLINE_S, PARTITIONS, TOPIC
from tests.chaos.klammchaos.retention_load import Reader, Writer
from tests.chaos.klammchaos.transaction_faults import COORDINATORS, TRANSACTION_FAULTS, TransactionStrike

MIN_INSYNC_REPLICAS: Final = 2
PAUSE_S: Final = (0.3, 2.0)
NAMED: Final = "named"
"""The group that the topic names."""
ANY: Final = "any"
"""The group that the topic means by `*`."""
GONE: Final = "gone"
"""A group that the topic names, and that is deleted before the faults."""
AWAY_S: Final = {NAMED: (4.0, 8.0), ANY: (10.0, 25.0)}
"""How long each group is away, which is longer than RETENTION_MS."""
RETENTION_MS: Final = 2_000
CONFIGS: Final = {
    "retention.ms": str(RETENTION_MS),
    "segment.ms": "1000",
    "file.delete.delay.ms": "1000",
    "retention.hold.groups": f"{NAMED},{GONE},*",
    "retention.hold.max.ms": str(24 * 3_600_000),
}


class RetentionCluster(NodeCluster):
    """A cluster whose brokers check retention all the time."""

    def listener_settings(self, node: int, address: str) -> dict[str, str]:
        settings = super().listener_settings(node, address)
        return {**settings, "log.retention.check.interval.ms": "300"} if node in BROKERS else settings


def run(*, duration_s: float, seed: int, directory: pathlib.Path, only: str = "") -> None:
    """Runs the workload and prints its events. Only faults with `only` in their names strike. Raises AssertionError if
    a property does not hold."""
    asyncio.run(_Run(RetentionCluster(directory, coordinators=COORDINATORS), seed, only).run(duration_s))


class _Run:
    def __init__(self, cluster: NodeCluster, seed: int, only: str) -> None:
        self._cluster = cluster
        self._rng = random.Random(seed)
        has_network = cluster.surroundings.has_network
        self._faults = [
            fault for fault in TRANSACTION_FAULTS if only in fault.name and (has_network or not fault.needs_network)
        ]
        assert self._faults, f"no fault that is possible here has {only!r} in its name"
        self._writer = Writer(cluster.bootstrap)
        self._readers = {
            group_id: Reader(cluster.bootstrap, group_id, away_s, random.Random(f"{seed}-{group_id}"))
            for group_id, away_s in AWAY_S.items()
        }
        self._fault_count = 0

    async def run(self, duration_s: float) -> None:
        for reason in self._cluster.surroundings.missing:
            print(f"left out: {reason}", flush=True)
        try:
            await self._cluster.begin(MIN_INSYNC_REPLICAS)
            for reader in self._readers.values():
                await reader.begin()
            await self._hold()
            await self._cluster.wait_whole()
            await self._delete_group()
            await self._load_and_strike(duration_s)
            for reader in self._readers.values():
                reader.records.check_complete(self._writer.acknowledged)
            await self._wait_released()
        except BaseException:
            await asyncio.to_thread(self._cluster.surroundings.save_disks)
            raise
        finally:
            await self._cluster.end()
        turns = ", ".join(f"{group_id} {reader.count} times" for group_id, reader in self._readers.items())
        print(
            f"\n{self._fault_count} faults in {duration_s:.0f} s; {len(self._writer.acknowledged)} records, read by"
            f" {turns}; all deleted in the end",
            flush=True,
        )

    async def _hold(self) -> None:
        changes = [ConfigChange(name=name, value=value) for name, value in CONFIGS.items()]
        resource = ConfigResource(ConfigResourceType.TOPIC, TOPIC)
        await self._cluster.admin.incremental_alter_configs({resource: changes})

    async def _delete_group(self) -> None:
        """Deletes a group that has an offset, after the topic has named it."""
        await Reader(self._cluster.bootstrap, GONE, (0, 0), self._rng).begin()
        await self._cluster.admin.delete_groups([GONE])

    async def _load_and_strike(self, duration_s: float) -> None:
        written, read = asyncio.Event(), asyncio.Event()
        writer = asyncio.create_task(self._writer.run(written))
        readers = [asyncio.create_task(reader.run(read)) for reader in self._readers.values()]
        strikes = asyncio.create_task(self._strike_until(time.monotonic() + duration_s))
        tasks = [writer, *readers, strikes]
        try:
            # A task of the load that ends before its event is set has failed.
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if strikes.done() and not strikes.exception():
                written.set()
                await asyncio.wait([writer, *readers], timeout=DEADLINE_S, return_when=asyncio.FIRST_COMPLETED)
                read.set()
                _, pending = await asyncio.wait([writer, *readers], timeout=DEADLINE_S)
                assert not pending, f"writer and readers did not end in {DEADLINE_S} s"
        finally:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
        for failure in ended:
            if isinstance(failure, Exception):
                raise failure

    async def _strike_until(self, until_s: float) -> None:
        begin_s = time.monotonic()
        for fault in deal(self._faults, self._rng):
            struck_s = time.monotonic()
            if struck_s >= until_s:
                return
            await fault.strike(TransactionStrike(cluster=self._cluster, rng=self._rng))
            self._cluster.expect_up()
            healed_s = time.monotonic()
            await self._wait_until_read(healed_s)
            self._fault_count += 1
            recovery_s = time.monotonic() - healed_s
            print(f"{struck_s - begin_s:7.2f} s  {fault.name}: read again in {recovery_s:.3f} s", flush=True)
            self._cluster.check_running()
            await asyncio.sleep(self._rng.uniform(*PAUSE_S))

    async def _wait_until_read(self, since_s: float) -> None:
        """Waits until the named group has read after that moment."""
        until_s = time.monotonic() + DEADLINE_S
        while self._readers[NAMED].read_s <= since_s:
            self._cluster.check_running()
            assert time.monotonic() < until_s, f"{NAMED} reads nothing in {DEADLINE_S} s"
            await asyncio.sleep(0.05)

    async def _wait_released(self) -> None:
        """Waits until every replica has deleted every record."""
        until_s = time.monotonic() + DEADLINE_S
        while left := await self._left():
            self._cluster.check_running()
            assert time.monotonic() < until_s, f"after {DEADLINE_S} s, there are still records: {left}"
            await asyncio.sleep(0.2)

    async def _left(self) -> list[str]:
        """Returns the replicas that still have records, or that cannot be described."""
        try:
            described = await self._cluster.admin.describe_log_dirs()
        except KlammError as error:
            return [repr(error)]
        replicas = [
            (broker_id, replica)
            for broker_id, log_dirs in described.items()
            for log_dir in log_dirs
            for replica in log_dir.replicas
            if replica.tp.topic == TOPIC
        ]
        missing = len(BROKERS) * PARTITIONS - len(replicas)
        return [
            *([f"{missing} replicas are not described"] if missing else []),
            *(
                f"{replica.tp} of broker {broker_id} from {replica.log_start_offset} to {replica.log_end_offset}"
                for broker_id, replica in replicas
                if replica.log_start_offset < replica.log_end_offset
            ),
        ]
