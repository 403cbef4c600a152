"""How many partitions a controller quorum bears: replay, snapshot, memory, creation and fail-over at a given size.

Run: python bench/metadata_scale.py [--partitions 100000] [--only image|quorum]

Topics have ten partitions of three replicas. "image" is what every controller, broker and coordinator does with the
metadata, alone in a process: records are replayed in batches as CreateTopics makes them, the image is written as a
snapshot and read again. "quorum" is three controllers as processes on this machine and one client: it creates all
topics, a request of 1,000 topics after the other, while a heartbeat is sent every 20 ms; then a new server asks for
all metadata; then the leader is killed with SIGKILL while the client creates a topic after the other, and "unavailable"
is the time from the kill to the first answer that tells of a new topic. The killed one is started again, and "caught
up" is when it has what the others have.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import math
import multiprocessing
import random
import statistics
import time
from collections.abc import AsyncIterator, Iterator

import grpc
import psutil
import uvloop

from bench.quorum import BROKER_IDS, Client, Controllers, client, controllers
from klamm.errors import ErrorCode
from klamm.wire.v1.controller_pb2 import (
    CreateTopicsRequest,
    DescribeQuorumRequest,
    NewTopic,
    WatchMetadataRequest,
)
from klamm.wire.v1.metadata_pb2 import (
    BrokerIds,
    MetadataBatch,
    MetadataRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
)
from klamm_controller.log.snapshot import image_of_snapshot, snapshot_bytes
from klamm_controller.metadata.policy import TopicPolicy
from klamm_controller.metadata.topics import TopicCreation
from klamm_server.metadata.image import MetadataImage, changed_topics
from klamm_server.metadata.replay import replay
from klamm_server.runtime.garbage import collect_seldom

PARTITIONS_PER_TOPIC = 10
TOPICS_PER_REQUEST = 1_000
"""controller.partitions.per.request.max is 10,000."""
FAIL_OVERS = 3
POLICY = TopicPolicy(
    num_partitions=1,
    default_replication_factor=3,
    partitions_per_request_max=TOPICS_PER_REQUEST * PARTITIONS_PER_TOPIC,
    delete_topic_enable=True,
    internal_topics={},
)


def show(what: str, figure: str) -> None:
    print(f"{what:<58} {figure}", flush=True)


def topic_names(partitions: int) -> list[list[str]]:
    """Returns the names of the topics, one list for each request that creates them."""
    names = [f"topic-{number:07}" for number in range(partitions // PARTITIONS_PER_TOPIC)]
    return [names[start : start + TOPICS_PER_REQUEST] for start in range(0, len(names), TOPICS_PER_REQUEST)]


# ---- the image


class GcWatch:
    """The longest collection of the garbage collector, which stops everything."""

    def __init__(self) -> None:
        self.longest_ms = 0.0
        self._started = 0.0
        gc.callbacks.append(self._on_phase)

    def _on_phase(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._started = time.perf_counter()
        else:
            self.longest_ms = max(self.longest_ms, (time.perf_counter() - self._started) * 1000)


def three_brokers() -> MetadataImage:
    records = [
        MetadataRecord(register_broker=RegisterBrokerRecord(broker_id=broker_id, broker_epoch=broker_id, fenced=False))
        for broker_id in BROKER_IDS
    ]
    return replay(MetadataImage.empty(), records, len(records))


def encoded_batches(partitions: int) -> Iterator[bytes]:
    """Yields the batches of the log after the topics have been created."""
    rng = random.Random(1)
    image = three_brokers()
    for names in topic_names(partitions):
        request = CreateTopicsRequest(
            topics=[NewTopic(name=name, partition_count=PARTITIONS_PER_TOPIC, replication_factor=3) for name in names]
        )
        creation = TopicCreation(request, POLICY, rng)
        for decide in creation.parts():
            records = decide(image).records
            yield MetadataBatch(records=records).SerializeToString()


def measure_image(partitions: int) -> None:
    batches = list(encoded_batches(partitions))
    gc.collect()
    collect_seldom()
    collector, process = GcWatch(), psutil.Process()
    before_bytes = process.memory_info().rss
    image, records = three_brokers(), 0
    started = time.perf_counter()
    for data in batches:
        batch = MetadataBatch.FromString(data)
        records += len(batch.records)
        image = replay(image, batch.records, image.end_index + len(batch.records))
    elapsed_s = time.perf_counter() - started
    del batch
    show("replay, records/s", f"{records / elapsed_s:,.0f}")
    show("resident memory, bytes per partition", f"{(process.memory_info().rss - before_bytes) / partitions:,.0f}")
    show("longest pause of the garbage collector meanwhile, ms", f"{collector.longest_ms:,.0f}")
    measure_snapshot(image, records)
    measure_change(image)


def measure_snapshot(image: MetadataImage, records: int) -> None:
    started = time.perf_counter()
    parts = list(snapshot_bytes(image, 1))
    made = time.perf_counter()
    loaded = image_of_snapshot(parts)
    read = time.perf_counter()
    assert loaded == image, "the snapshot is of another image"
    show("snapshot, MB", f"{sum(map(len, parts)) / 1e6:,.1f}")
    show("snapshot, encoding, s (records/s)", f"{made - started:.2f} ({records / (made - started):,.0f})")
    show("snapshot, loading, s (records/s)", f"{read - made:.2f} ({records / (read - made):,.0f})")


def measure_change(image: MetadataImage) -> None:
    """Measures what one change of one partition costs every server that follows the log."""
    topic = next(iter(image.topics_by_id.values()))
    isr = BrokerIds(broker_ids=[topic.partitions[0].leader])
    record = MetadataRecord(partition_change=PartitionChangeRecord(topic_id=topic.topic_id.bytes, partition=0, isr=isr))
    costs_us = []
    for _ in range(100):
        started = time.perf_counter()
        after = replay(image, [record], image.end_index + 1)
        (change,) = changed_topics(image, after).changed
        costs_us.append((time.perf_counter() - started) * 1e6)
        assert change[1].partitions[0].isr == tuple(isr.broker_ids)
    show("one changed partition: replay and what changed, us", f"{statistics.median(costs_us):.0f}")


# ---- the quorum


@contextlib.asynccontextmanager
async def heartbeats(connected: Client) -> AsyncIterator[list[float]]:
    """Sends a heartbeat every 20 ms on a connection of its own. Yields the latencies in ms, from the time when each was
    due."""
    latencies: list[float] = []

    async def beat() -> None:
        due = time.perf_counter()
        while True:
            await connected.heartbeat(BROKER_IDS[0])
            latencies.append((time.perf_counter() - due) * 1000)
            due = max(due + 0.02, time.perf_counter())
            await asyncio.sleep(due - time.perf_counter())

    task = asyncio.create_task(beat())
    try:
        yield latencies
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def create_all(quorum: Controllers, connected: Client, partitions: int) -> None:
    async with client(quorum) as other, heartbeats(other) as latencies:
        started, cpu_s, repeated = time.perf_counter(), quorum.cpu_s(), connected.repeated
        for number, names in enumerate(topic_names(partitions), 1):
            await connected.create_topics(names, PARTITIONS_PER_TOPIC)
            created = number * TOPICS_PER_REQUEST
            if created == 10_000 or number * TOPICS_PER_REQUEST * PARTITIONS_PER_TOPIC >= partitions:
                elapsed_s = time.perf_counter() - started
                show(f"creating {created:,} topics x {PARTITIONS_PER_TOPIC}, s", f"{elapsed_s:.1f}")
        show("requests that were made again, for a change of leader", f"{connected.repeated - repeated:,}")
        show("of all, partitions/s", f"{partitions / elapsed_s:,.0f}")
        show("CPU of the three controllers, s", f"{quorum.cpu_s() - cpu_s:.1f}")
    percentiles = statistics.quantiles(latencies, n=100, method="inclusive")
    figures = f"{percentiles[49]:.1f} / {percentiles[98]:.1f} / {max(latencies):.1f}"
    events = quorum.queue_events(connected.leader_id)
    slow = " / ".join(f"{events[math.inf] - events[bound]:,}" for bound in (0.003, 0.01, 0.03))
    show("events of the leader's queue, over 3 / 10 / 30 ms", f"{events[math.inf]:,}, {slow}")
    show("a broker's heartbeat meanwhile, ms, p50 / p99 / longest", figures)


async def load_all(connected: Client) -> None:
    """Measures how long a starting broker waits for the metadata, without its own replay."""
    started = time.perf_counter()
    count = 0
    async for batch in connected.controller.watch_metadata(WatchMetadataRequest(start_index=0)):
        count += len(batch.records)
        if batch.snapshot_end:
            break
    show("all metadata to a new server, s", f"{time.perf_counter() - started:.1f} ({count:,} records)")


async def fail_over(quorum: Controllers, connected: Client, number: int) -> float:
    """Kills the leader while a client creates topics. Returns the seconds until a topic is created again."""
    await connected.create_topics([f"before-{number}"], 1)
    victim = connected.leader_id
    quorum.kill(victim)
    killed = time.perf_counter()
    while True:
        request = CreateTopicsRequest(
            topics=[NewTopic(name=f"after-{number}", partition_count=1, replication_factor=3)], timeout_ms=1_000
        )
        with contextlib.suppress(grpc.RpcError):
            answer = await connected.admin.create_topics(request, timeout=1)
            exists = answer.topics and answer.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
            if not answer.error_code and (exists or not answer.topics[0].error_code):
                break
        connected.leader_id = connected.leader_id % len(quorum.ports) + 1
        await asyncio.sleep(0.005)
    unavailable_s = time.perf_counter() - killed
    await catch_up(quorum, connected, victim)
    return unavailable_s


async def catch_up(quorum: Controllers, connected: Client, node_id: int) -> None:
    """Starts a controller again and waits until it has what the leader has."""
    started = time.perf_counter()
    quorum.start(node_id)
    while True:
        status = await connected.admin.describe_quorum(DescribeQuorumRequest(), timeout=60)
        (replica,) = (each for each in status.replicas if each.node_id == node_id)
        if replica.end_index >= status.high_watermark and replica.silent_ms < 1_000:
            break
        await asyncio.sleep(0.05)
    show("a killed controller, from its start to caught up, s", f"{time.perf_counter() - started:.1f}")


async def measure_quorum(quorum: Controllers, partitions: int) -> None:
    async with client(quorum) as connected:
        before_mb = quorum.rss_mb(connected.leader_id)
        await create_all(quorum, connected, partitions)
        memory = ", ".join(f"{quorum.rss_mb(node_id):.0f}" for node_id in quorum.ports)
        show("resident, MB, each controller (the leader before)", f"{memory} ({before_mb:.0f})")
        await load_all(connected)
        outages = [await fail_over(quorum, connected, number) for number in range(FAIL_OVERS)]
        show("unavailable after kill -9 of the leader, s", ", ".join(f"{outage:.2f}" for outage in outages))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--partitions", type=int, default=100_000)
    parser.add_argument("--only", choices=("image", "quorum"))
    options = parser.parse_args()
    if options.only != "quorum":
        # A process of its own: its memory is the image's.
        worker = multiprocessing.get_context("spawn").Process(target=measure_image, args=(options.partitions,))
        worker.start()
        worker.join()
        assert worker.exitcode == 0, worker.exitcode
    if options.only != "image":
        with controllers() as quorum:
            uvloop.run(measure_quorum(quorum, options.partitions))


if __name__ == "__main__":
    main()
