"""Tests brokers with full disks beside brokers with free space: three brokers in one event loop, and a real controller.

`tests/chaos` fills real file systems. Here a disk reports that it is full exactly when the test wants it.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from grpc import aio

from klamm.admin import AsyncAdmin, NewTopic
from klamm.admin.types import PartitionDescription
from klamm.consumer import AsyncConsumer
from klamm.errors import KlammError
from klamm.model import TopicPartition
from klamm.producer import AsyncProducer
from klamm.wire.v1.broker_rpc import BROKER
from klamm_broker.server import BrokerServer
from klamm_controller.config import ControllerConfig
from klamm_controller.server import ControllerServer
from klamm_server.config.broker_configs import BrokerConfig
from klamm_server.config.server_config import load
from klamm_server.runtime.disk import Buffer, Disk, DiskSpace
from tests.support.broker_harness import fetch_request, split_fetch
from tests.support.coordinator_cluster import HOST, run
from tests.support.raw_stub import RawStub
from tests.support.waiting import patience, until

TP = TopicPartition("t", 0)


class FillableDisk(Disk):
    """A disk without space for records while it is `full`."""

    def __init__(self) -> None:
        self.full = False

    def _refuse(self) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def pwrite(self, fd: int, data: Buffer, position: int) -> int:  # type: ignore[override]
        self._refuse()
        return os.pwrite(fd, data, position)

    def writev(self, fd: int, buffers: Sequence[Buffer]) -> int:  # type: ignore[override]
        self._refuse()
        return os.writev(fd, buffers)

    def space(self, path: str) -> DiskSpace:
        space = super().space(path)
        return space._replace(usable_bytes=0) if self.full else space

    def allocate(self, directory: str, size_bytes: int) -> None:
        self._refuse()


class Cluster:
    """Brokers 1, 2 and 3, with topic "t" of one partition. Broker 1 leads, and two replicas must be in sync."""

    def __init__(self, admin: AsyncAdmin, bootstrap: str, disks: dict[int, FillableDisk]) -> None:
        self.admin = admin
        self.ports = [int(address.rpartition(":")[2]) for address in bootstrap.split(",")]
        self.bootstrap = bootstrap
        self.disks = disks

    async def partition(self, topic: str = TP.topic) -> PartitionDescription:
        return (await self.admin.describe_topics([topic]))[topic].partitions[0]

    async def until(self, is_so: Callable[[PartitionDescription], bool], topic: str = TP.topic) -> PartitionDescription:
        async def asked() -> PartitionDescription | None:
            partition = await self.partition(topic)
            return partition if is_so(partition) else None

        found = await until(asked, pause_s=0.05)
        assert found is not None
        return found

    async def send(self, topic: str = TP.topic) -> int:
        """Sends a record with acks=all and returns its offset."""
        async with asyncio.timeout(patience()):
            async with AsyncProducer(bootstrap_servers=self.bootstrap) as producer:
                return (await (await producer.send(topic, b"v", partition=0))).offset

    async def until_all_know_the_high_watermark(self, wanted: int) -> None:
        """Waits until every replica has this high watermark. Below min.insync.replicas, a new leader cannot move it."""

        async def known_by(stub: RawStub) -> bool:
            # Followers answer only clients that name a rack.
            ((answer, _),) = split_fetch(await stub.fetch(fetch_request([(*TP, 0)], rack_id="any")))
            return answer.high_watermark == wanted

        for port in self.ports:
            async with aio.insecure_channel(f"{HOST}:{port}") as channel:
                stub = RawStub(channel, BROKER)
                await until(lambda stub=stub: known_by(stub), pause_s=0.05)

    async def refuses(self) -> None:
        """Checks that the cluster accepts no record, although the producer retries for a second."""
        async with AsyncProducer(
            bootstrap_servers=self.bootstrap, request_timeout_ms=500, delivery_timeout_ms=1_000, linger_ms=0
        ) as producer:
            with pytest.raises(KlammError):
                await (await producer.send(TP.topic, b"v", partition=0))

    async def read(self) -> int:
        """Returns the number of records in the topic."""
        async with AsyncConsumer(bootstrap_servers=self.bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([TP])
            end = (await consumer.end_offsets([TP]))[TP]
            found = 0
            async with asyncio.timeout(patience()):
                while await consumer.position(TP) < end:
                    found += sum(map(len, (await consumer.poll(200)).values()))
            return found


@asynccontextmanager
async def cluster_of_three(directory: Path) -> AsyncIterator[Cluster]:
    settings = {"node.id": "1", "listeners": f"GRPC://{HOST}:0", "metadata.log.dir": str(directory / "controller")}
    controller = await run(ControllerServer(load(ControllerConfig, settings)))
    disks = {broker_id: FillableDisk() for broker_id in (1, 2, 3)}
    brokers = []
    for broker_id, disk in disks.items():
        properties = {
            "node.id": str(broker_id),
            "listeners": f"GRPC://{HOST}:0",
            "controller.quorum.bootstrap.servers": f"{HOST}:{controller.port}",
            "log.dirs": str(directory / f"broker-{broker_id}"),
            "shutdown.grace.ms": "100",
            # A replica without space resigns from the in-sync set, so no test waits for this lag.
            "replica.lag.time.max.ms": "3600000",
        }
        brokers.append(await run(BrokerServer(load(BrokerConfig, properties), disk=disk)))
    bootstrap = ",".join(f"{HOST}:{broker.port}" for broker in brokers)
    async with AsyncAdmin(bootstrap_servers=bootstrap) as admin:
        wanted = NewTopic(TP.topic, assignments={0: [1, 2, 3]}, configs={"min.insync.replicas": "2"})
        await admin.create_topics([wanted])
        cluster = Cluster(admin, bootstrap, disks)
        assert await cluster.send() == 0
        try:
            yield cluster
        finally:
            for disk in disks.values():
                disk.full = False
    for broker in brokers:
        await broker.stop()
    await controller.stop()


def scenario(directory: Path, story: Callable[[Cluster], Awaitable[None]]) -> None:
    async def told() -> None:
        async with cluster_of_three(directory) as cluster:
            await story(cluster)

    asyncio.run(told())


def test_a_leader_without_space_hands_over_and_writes_go_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def story(cluster: Cluster) -> None:
        cluster.disks[1].full = True
        assert await cluster.send() == 1
        partition = await cluster.partition()
        assert (partition.leader, partition.isr, partition.resigned_replicas) == (2, (2, 3), (1,))
        assert not partition.refusal
        cluster.disks[1].full = False
        partition = await cluster.until(lambda partition: len(partition.isr) == 3)
        assert (partition.leader, partition.resigned_replicas) == (2, ()), "the balance gives it back, in its time"
        assert await cluster.send() == 2
        assert await cluster.read() == 3

    scenario(tmp_path, story)
    told = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert [line.split("broker-1 ")[1][:10] for line in told if "broker-1" in line] == ["is full: i", "has space "]
    # The path of the directory itself may contain "t-0".
    assert not [line for line in told if "t-0" in line.replace(str(tmp_path), "")]


def test_a_follower_without_space_leaves_the_isr_and_rejoins_when_it_has_space(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.disks[3].full = True
        assert [await cluster.send() for _ in range(2)] == [1, 2]
        partition = await cluster.until(lambda partition: partition.resigned_replicas == (3,))
        assert (partition.leader, partition.leader_epoch, partition.isr) == (1, 0, (1, 2))
        cluster.disks[3].full = False
        await cluster.until(lambda partition: len(partition.isr) == 3)

    scenario(tmp_path, story)


def test_with_all_disks_full_only_reads_work_and_the_first_replica_with_space_leads(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.until_all_know_the_high_watermark(1)
        for disk in cluster.disks.values():
            disk.full = True
        await cluster.refuses()
        partition = await cluster.until(lambda partition: len(partition.isr) == 1)
        assert partition.leader >= 0
        assert partition.refusal in ("below min.insync.replicas", "the leader has resigned")
        assert await cluster.read() == 1
        with_space = [broker_id for broker_id in (1, 2, 3) if broker_id != partition.leader]
        for broker_id in with_space:
            cluster.disks[broker_id].full = False
        assert await cluster.send() >= 1
        partition = await cluster.partition()
        assert partition.leader in with_space
        assert not partition.refusal

    scenario(tmp_path, story)


def test_another_replica_leads_a_new_partition_if_the_first_has_no_space_for_its_log(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.disks[1].full = True
        wanted = NewTopic("new", assignments={0: [1, 2, 3]}, configs={"min.insync.replicas": "2"})
        await cluster.admin.create_topics([wanted])
        assert await cluster.send("new") == 0
        assert (await cluster.partition("new")).leader == 2
        cluster.disks[1].full = False
        await cluster.until(lambda partition: len(partition.isr) == 3, "new")

    scenario(tmp_path, story)


def test_a_topic_that_is_deleted_while_the_disk_is_full_can_be_made_again_when_there_is_space(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(cluster: Cluster) -> None:
        configs = {"min.insync.replicas": "1", "file.delete.delay.ms": "0"}
        wanted = NewTopic("again", assignments={0: [1]}, configs=configs)
        await cluster.admin.create_topics([wanted])
        assert await cluster.send("again") == 0
        cluster.disks[1].full = True
        await cluster.admin.delete_topics(["again"])
        await until(
            lambda: "again-0" not in {path.name for path in (tmp_path / "broker-1").iterdir()}, "it is not renamed"
        )
        await until(lambda: "no space left" in caplog.text, "the full disk refuses nothing")
        cluster.disks[1].full = False
        await cluster.admin.create_topics([wanted])
        assert await cluster.send("again") == 0
        await until(lambda: not list(tmp_path.rglob("again-0.*-delete")), "the deleted log is still there")

    scenario(tmp_path, story)
