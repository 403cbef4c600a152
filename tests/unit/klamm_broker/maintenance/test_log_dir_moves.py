"""Tests moves between log dirs during failures and other changes: the replica always has one whole log."""

from __future__ import annotations

import asyncio
import errno
import os
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from klamm.errors import BrokerError, ErrorCode
from klamm.model import TopicId, TopicPartition
from klamm.records.encoder import encode_batch
from klamm_broker.io.record_reader import RecordReader
from klamm_broker.log.files.storage_failure import LogDir
from klamm_broker.log.log_config import LogConfig
from klamm_broker.log.partition.partition_log import ClientAppend
from klamm_broker.log.partition.pending_deletion import PendingDeletion
from klamm_broker.maintenance.log_dir_moves import LogDirMoves
from klamm_broker.replica.follower_partition import LeaderAnswer
from klamm_broker.replica.leadership import IsrChange
from klamm_broker.replica.partition import Partition
from klamm_broker.replica.replica_manager import ReplicaManager
from klamm_server.metadata.entities import PartitionImage
from klamm_server.runtime.clock import SystemClock
from klamm_server.runtime.disk import Disk
from tests.support.log_steps import create_log, open_logs
from tests.support.waiting import until

NAME = TopicPartition("orders", 0)
TOPIC_ID = TopicId(uuid.UUID(int=7))
CONFIG = LogConfig(segment_bytes=4_096, index_interval_bytes=100)
BATCH = bytes(encode_batch([(0, None, b"v" * 100, ())]))
COUNT = 200


class Observer:
    def on_change(self, topic_partition: TopicPartition) -> None: ...
    def on_append(self, topic_partition: TopicPartition) -> None: ...
    def on_sync_owed(self, partition: Partition) -> None: ...
    def on_log_start(self, topic_partition: TopicPartition) -> None: ...
    def on_isr_change(self, partition: Partition, change: IsrChange) -> None: ...
    def on_role(self, partition: Partition) -> None: ...
    def on_offline(self, topic_id: bytes, partition: int) -> None: ...
    def on_no_space(self, topic_id: bytes, partition: int) -> None: ...
    def on_disk_full(self, log_dir: LogDir) -> None: ...


class FailingDisk(Disk):
    """A disk that refuses to write below a path, with an errno."""

    def __init__(self) -> None:
        self.below, self.errno = "", 0
        self._paths: dict[int, str] = {}

    def open(self, path: str, flags: int) -> int:
        fd = super().open(path, flags)
        self._paths[fd] = path
        return fd

    def writev(self, fd: int, buffers: Sequence[Any]) -> int:  # type: ignore[override]
        if self.errno and self._paths[fd].startswith(self.below):
            raise OSError(self.errno, os.strerror(self.errno))
        return os.writev(fd, buffers)


class Broker:
    """A replica in dir `a`, with `b` as its other dir."""

    def __init__(self, root: Path) -> None:
        self.a, self.b = str(root / "a"), str(root / "b")
        self.disk = FailingDisk()
        self.logs = open_logs(self.a, self.b, disk=self.disk)
        clock = SystemClock()
        self.replicas = ReplicaManager(broker_id=1, clock=clock, observer=Observer())
        self.retired: list[PendingDeletion] = []
        self._records = RecordReader(self.disk, thread_count=1)
        self.moves = LogDirMoves(
            self.logs,
            self.replicas,
            self._records,
            retire=self.retired.append,
            moves_max=2,
            backoff_ms=1,
            clock=clock,
        )
        self.partition = Partition(
            NAME,
            create_log(self.logs, NAME, TOPIC_ID, CONFIG),
            topic_id=TOPIC_ID,
            broker_id=1,
            high_watermark=0,
            brokers=self.replicas.brokers,
            lag_time_max_ms=1_000,
        )
        self.replicas.host(self.partition)
        self.lead(1, epoch=0)
        for _ in range(COUNT):
            self.append()

    def lead(self, leader: int, epoch: int) -> None:
        image = PartitionImage(
            partition=0, replicas=(1, 2), isr=(1,), leader=leader, leader_epoch=epoch, partition_epoch=epoch
        )
        self.replicas.apply(self.partition, image)

    def append(self) -> None:
        self.replicas.append(NAME, ClientAppend(memoryview(BATCH)), acks=1)

    @property
    def home(self) -> str:
        assert self.logs.hosted.current[NAME] is self.partition.log
        return self.partition.log.log_dir.path

    def pace(self, bytes_per_second: int) -> None:
        self.replicas.quotas.log_dirs.configure(bytes_per_second, {})
        self.moves.wake()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.moves.run())
        try:
            async with asyncio.timeout(60):
                yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self.moves.close()
            self._records.close()
            self.logs.close(broker_epoch=1)


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker(tmp_path)


def test_a_replica_accepts_appends_while_it_moves(broker: Broker) -> None:
    async def scenario() -> None:
        async with broker.running():
            await broker.moves.alter(NAME, broker.b)
            while broker.home == broker.a:
                broker.append()
                await asyncio.sleep(0)
            broker.append()
            assert broker.partition.log.log_end_offset > COUNT
            broker.partition.log.check_invariants()
            await until(lambda: bool(broker.retired))
            assert broker.retired[0].log_dir.path == broker.a
            await broker.moves.alter(NAME, broker.b)
            assert not broker.logs.hosted.futures, "it is there"

    asyncio.run(scenario())


def test_a_follower_continues_with_the_moved_log(broker: Broker) -> None:
    async def scenario() -> None:
        async with broker.running():
            broker.lead(2, epoch=1)
            await broker.moves.alter(NAME, broker.b)
            await until(lambda: broker.home == broker.b)
            batch = bytes(
                encode_batch([(0, None, b"from the leader", ())], base_offset=COUNT, partition_leader_epoch=1)
            )
            answer = LeaderAnswer(0, COUNT, COUNT + 1, 0, COUNT + 1, batch, None)
            broker.partition.on_leader_answer(answer, wall_ms=0)
            assert broker.partition.log.log_end_offset == COUNT + 1

    asyncio.run(scenario())


def test_a_target_that_fails_leaves_the_replica_where_it_is(broker: Broker) -> None:
    async def scenario() -> None:
        async with broker.running():
            broker.disk.below, broker.disk.errno = broker.b, errno.EIO
            await broker.moves.alter(NAME, broker.b)
            await until(lambda: not broker.logs.hosted.futures)
            assert broker.logs.directories.offline().keys() == {broker.b}
            assert broker.home == broker.a
            broker.append()
            with pytest.raises(BrokerError) as refused:
                await broker.moves.alter(NAME, broker.b)
            assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR

    asyncio.run(scenario())


def test_a_move_to_a_full_dir_is_retried(broker: Broker) -> None:
    async def scenario() -> None:
        async with broker.running():
            broker.disk.below, broker.disk.errno = broker.b, errno.ENOSPC
            await broker.moves.alter(NAME, broker.b)
            for _ in range(100):
                await asyncio.sleep(0)
            assert (broker.home, list(broker.logs.hosted.futures)) == (broker.a, [NAME])
            broker.disk.errno = 0
            await until(lambda: broker.home == broker.b)
            assert broker.partition.log.log_end_offset == COUNT

    asyncio.run(scenario())


def test_the_rate_of_a_move_can_be_changed_and_the_move_be_cancelled(broker: Broker) -> None:
    async def scenario() -> None:
        async with broker.running():
            broker.pace(1)
            await broker.moves.alter(NAME, broker.b)
            await until(lambda: broker.replicas.quotas.log_dirs.copied_bytes > 0)
            assert broker.home == broker.a
            await broker.moves.alter(NAME, broker.a)
            assert not broker.logs.hosted.futures
            assert [len(one.paths) for one in broker.retired] == [1]
            assert broker.retired[0].paths[0].endswith("-delete")
            await broker.moves.alter(NAME, broker.b)
            broker.pace(10**9)
            await until(lambda: broker.home == broker.b)

    asyncio.run(scenario())


def test_a_deleted_partition_ends_its_move(broker: Broker) -> None:
    async def scenario() -> None:
        async with broker.running():
            broker.pace(1)
            await broker.moves.alter(NAME, broker.b)
            broker.replicas.drop(NAME)
            for job in broker.logs.deletion.plan([NAME], now_ms=0):
                job.run()
                broker.logs.deletion.complete(job)
            broker.pace(10**9)
            await until(lambda: not broker.moves._tasks)
            assert not broker.logs.hosted.all()
            with pytest.raises(BrokerError) as refused:
                await broker.moves.alter(NAME, broker.b)
            assert refused.value.code is ErrorCode.REPLICA_NOT_AVAILABLE

    asyncio.run(scenario())
