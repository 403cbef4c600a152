"""Tests produces to a topic with `flush.messages`, which wait until their records are synced."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from pathlib import Path

from klamm.errors import ErrorCode
from klamm.records.encoder import encode_batch
from klamm_broker.handlers.produce import ACKS_ALL, Produced
from klamm_server.metadata.entities import PartitionImage
from klamm_server.runtime.disk import Disk
from klamm_server.runtime.waiting import Waiting
from tests.support.led_partition import OTHER, THIS, LedPartition, led_by
from tests.support.waiting import patience, until


class SlowDisk(Disk):
    """A disk whose syncs wait for the test, once `is_slow` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.goes_on = threading.Semaphore(0)
        self.sync_count = 0
        self.is_slow = False
        self.error: OSError | None = None

    def fdatasync(self, fd: int) -> None:  # type: ignore[override]
        if self.is_slow:
            self.sync_count += 1
            assert self.goes_on.acquire(timeout=patience())
            if self.error is not None:
                raise self.error
        os.fdatasync(fd)


def broker_with(disk: SlowDisk, directory: Path) -> LedPartition:
    broker = LedPartition(directory, disk=disk, flush_messages=1)
    disk.is_slow = True
    return broker


def alone() -> PartitionImage:
    """Returns the state of a partition without other replicas."""
    return led_by(THIS, 2)._replace(replicas=(THIS,), isr=(THIS,))


def begin(broker: LedPartition, acks: int) -> asyncio.Task[list[Produced]]:
    answers = broker.produce(encode_batch([(0, None, b"v", ())]), acks)
    assert isinstance(answers, Waiting)
    return asyncio.create_task(answers.work)


def test_produces_that_wait_for_a_sync_share_the_next_one(tmp_path: Path) -> None:
    async def run() -> None:
        disk = SlowDisk()
        broker = broker_with(disk, tmp_path)
        broker.replicas.apply(broker.partition, alone())
        first = begin(broker, 1)
        await until(lambda: disk.sync_count == 1)
        others = [begin(broker, acks) for acks in (1, ACKS_ALL, 1, ACKS_ALL)]
        await asyncio.sleep(0)
        assert (broker.partition.high_watermark, broker.partition.log.log_end_offset) == (0, 5)
        disk.goes_on.release()
        assert (await first)[0].error_code is ErrorCode.NONE
        assert broker.partition.high_watermark == 1
        assert not any(other.done() for other in others)
        disk.goes_on.release()
        answers = [(await other)[0] for other in others]
        assert [(answer.error_code, answer.base_offset) for answer in answers] == [(0, 1), (0, 2), (0, 3), (0, 4)]
        assert (broker.partition.high_watermark, disk.sync_count) == (5, 2)
        broker.close()

    asyncio.run(run())


def test_with_replicas_the_high_watermark_needs_their_records_and_the_sync(tmp_path: Path) -> None:
    async def run() -> None:
        disk = SlowDisk()
        broker = broker_with(disk, tmp_path)
        by_all, by_one = begin(broker, ACKS_ALL), begin(broker, 1)
        disk.goes_on.release(2)
        assert (await by_one)[0].error_code is ErrorCode.NONE
        assert not by_all.done()
        assert broker.partition.high_watermark == 0
        broker.replicas.apply(broker.partition, led_by(OTHER, 2))
        assert (await by_all)[0].error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        broker.close()

    asyncio.run(run())


def test_a_failed_sync_acknowledges_nothing(tmp_path: Path) -> None:
    async def run() -> None:
        disk = SlowDisk()
        broker = broker_with(disk, tmp_path)
        broker.replicas.apply(broker.partition, alone())
        produces = [begin(broker, acks) for acks in (1, ACKS_ALL)]
        disk.error = OSError(errno.EIO, os.strerror(errno.EIO))
        disk.goes_on.release()
        answers = [(await produce)[0] for produce in produces]
        assert [answer.error_code for answer in answers] == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
        assert broker.partition.high_watermark == 0
        broker.close()

    asyncio.run(run())


def test_with_acks_0_nothing_waits(tmp_path: Path) -> None:
    async def run() -> None:
        disk = SlowDisk()
        broker = broker_with(disk, tmp_path)
        broker.replicas.apply(broker.partition, alone())
        assert broker.produce(encode_batch([(0, None, b"v", ())]), 0) == []
        disk.goes_on.release()
        await until(lambda: broker.partition.high_watermark == 1)
        broker.close()

    asyncio.run(run())
