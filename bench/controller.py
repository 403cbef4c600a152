"""Latency and throughput of changes of the metadata, beside what the disk allows: topics created, in-sync sets altered.

Run: python bench/controller.py [--seconds 3]

Three controllers, each a process of its own on this machine's disk and cores, and one asyncio client; the brokers
are registrations only (bench/quorum.py). A change is answered when a majority has it on disk. "x two fsyncs" is the
median against twice the disk's own in the same run: the leader's and, at the same time or after it, a follower's. "one
at a time" is one caller that waits for each answer, "32 callers" are as many at once.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import itertools
import os
import pathlib
import statistics
import threading
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import uvloop

from bench.quorum import BROKER_IDS, Client, Controllers, client, controllers
from klamm.wire.v1.controller_pb2 import AlterPartitionRequest, IsrChange, IsrMember

BLOCK = bytes(512)
"""About what the log of one small change takes."""


class Run(NamedTuple):
    """One measurement: the number of answered calls, and the duration of each."""

    elapsed_s: float
    latencies_ms: list[float]

    def percentile(self, percent: int) -> float:
        return statistics.quantiles(self.latencies_ms, n=100, method="inclusive")[percent - 1]


def fsync_latencies(directory: pathlib.Path, seconds: float, writers: int) -> list[float]:
    """ms of each append of a block and its fdatasync, of `writers` threads with a file each."""
    latencies: list[float] = []
    until_s = time.monotonic() + seconds

    def write(path: pathlib.Path) -> None:
        with path.open("ab", buffering=0) as file:
            while (started := time.perf_counter()) and time.monotonic() < until_s:
                file.write(BLOCK)
                os.fdatasync(file.fileno())
                latencies.append((time.perf_counter() - started) * 1000)

    threads = [threading.Thread(target=write, args=(directory / f"fsync-{number}",)) for number in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return latencies


async def calls(call: Callable[[], Awaitable[None]], *, callers: int, seconds: float) -> Run:
    """Calls for so long, after a warm-up of a tenth of it."""
    latencies: list[float] = []

    async def repeat(until_s: float) -> None:
        while time.perf_counter() < until_s:
            started = time.perf_counter()
            await call()
            latencies.append((time.perf_counter() - started) * 1000)

    for length_s in (seconds / 10, seconds):
        latencies.clear()
        started = time.perf_counter()
        await asyncio.gather(*(repeat(started + length_s) for _ in range(callers)))
    return Run(time.perf_counter() - started, latencies)


class Partitions:
    """Topics whose in-sync sets go back and forth between all replicas and the leader alone."""

    def __init__(self, connected: Client) -> None:
        self._client = connected
        self._free: list[tuple[bytes, int, list[int]]] = []
        """(topic id, partition, [partition epoch]) of those that no call is changing, all led by one broker."""
        self._leader = BROKER_IDS[0]

    async def create(self, count: int) -> None:
        """Partitions whose preferred leader is the broker that the requests come from."""
        assert count % 1_000 == 0, count
        for number in range(count // 1_000):
            (topic_id,) = await self._client.create_on(f"altered-{number}", 1_000, self._leader)
            self._free += [(topic_id, partition, [0]) for partition in range(1_000)]

    async def alter(self, count: int) -> None:
        """Sends one request that changes `count` partitions."""
        chosen, self._free = self._free[:count], self._free[count:]
        assert len(chosen) == count, "too few partitions"
        epochs = self._client.broker_epochs
        changes = []
        for topic_id, partition, (epoch,) in chosen:
            isr = BROKER_IDS[:1] if epoch % 2 == 0 else BROKER_IDS
            changes.append(
                IsrChange(
                    topic_id=topic_id,
                    partition=partition,
                    leader_epoch=0,
                    partition_epoch=epoch,
                    new_isr=[IsrMember(broker_id=each, broker_epoch=epochs[each]) for each in isr],
                )
            )
        request = AlterPartitionRequest(broker_id=self._leader, broker_epoch=epochs[self._leader], partitions=changes)
        answer = await self._client.controller.alter_partition(request, timeout=60)
        assert not answer.error_code, answer
        assert not any(partition.error_code for partition in answer.partitions), answer.partitions[0]
        for (_, _, held), altered in zip(chosen, answer.partitions, strict=True):
            held[0] = altered.partition_epoch
        self._free += chosen


def report(what: str, run: Run, two_fsyncs_ms: float, *, per_call: int = 1) -> None:
    """Prints one line."""
    p50 = run.percentile(50)
    print(
        f"{what:<44} {len(run.latencies_ms) * per_call / run.elapsed_s:>9,.0f}/s   p50 {p50:6.2f} ms"
        f"  p99 {run.percentile(99):6.2f} ms  {p50 / two_fsyncs_ms:5.1f} x two fsyncs",
        flush=True,
    )


async def measure(quorum: Controllers, seconds: float) -> None:
    alone = fsync_latencies(quorum.directory, seconds / 3, 1)
    crowd = fsync_latencies(quorum.directory, seconds / 3, 3)
    two_fsyncs_ms = 2 * statistics.median(alone)
    for name, latencies in (("fdatasync of 512 B, one writer", alone), ("fdatasync of 512 B, three writers", crowd)):
        percentiles = statistics.quantiles(latencies, n=100, method="inclusive")
        print(f"{name:<44} {'':>11}   p50 {percentiles[49]:6.2f} ms  p99 {percentiles[98]:6.2f} ms", flush=True)
    names = (f"topic-{number}" for number in itertools.count())
    async with client(quorum) as connected:

        async def create(count: int, partition_count: int) -> None:
            await connected.create_topics([next(names) for _ in range(count)], partition_count)

        beat = await calls(lambda: connected.heartbeat(BROKER_IDS[0]), callers=1, seconds=seconds / 3)
        report("BrokerHeartbeat, which writes nothing", beat, two_fsyncs_ms)
        for count, partition_count, callers in ((1, 1, 1), (1, 1, 32), (100, 10, 1)):
            run = await calls(functools.partial(create, count, partition_count), callers=callers, seconds=seconds)
            who = "one at a time" if callers == 1 else f"{callers} callers"
            report(f"CreateTopics {count} x {partition_count}, {who}, topics", run, two_fsyncs_ms, per_call=count)
        partitions = Partitions(connected)
        await partitions.create(10_000)
        for count, callers in ((1, 1), (1, 32), (100, 1), (1_000, 1)):
            run = await calls(functools.partial(partitions.alter, count), callers=callers, seconds=seconds)
            who = "one at a time" if callers == 1 else f"{callers} callers"
            report(f"AlterPartition {count}, {who}, partitions", run, two_fsyncs_ms, per_call=count)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    options = parser.parse_args()
    with controllers() as quorum:
        uvloop.run(measure(quorum, options.seconds))


if __name__ == "__main__":
    main()
