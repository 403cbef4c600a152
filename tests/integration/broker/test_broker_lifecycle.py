"""Tests how a broker starts, stops and crashes, and how the metadata changes its directories."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from klamm.errors import BrokerError, ErrorCode, KlammError
from klamm_broker.log.files.clean_shutdown import CLEAN_SHUTDOWN_FILE
from klamm_broker.log.files.meta_properties import MetaProperties
from klamm_broker.log.files.partition_metadata import encode_uuid
from klamm_broker.log.files.storage_failure import LogDirError
from klamm_server.runtime.disk import Buffer, Disk
from tests.support.broker_harness import LONG_MS, RunningBroker, ScriptedController, StartBroker, batch
from tests.support.violation import verdict
from tests.support.waiting import patience, until


def test_records_survive_an_orderly_restart(start_broker: StartBroker, tmp_path: Path) -> None:
    async def scenario() -> None:
        controller = ScriptedController()
        async with start_broker(controller=controller) as (broker, _):
            await controller.create_topic("flights", 2)
            await broker.wait_for_topic("flights", 2)
            await broker.produce("flights", batch(3), partition=1)
        assert (tmp_path / "data" / CLEAN_SHUTDOWN_FILE).exists()
        assert controller.heartbeats[-1].want_shutdown
        async with start_broker(controller=controller) as (broker, _):
            answer, records = await broker.fetch("flights", partition=1)
            with verdict():
                assert (answer.high_watermark, len(records)) == (3, len(batch(3)))
            assert (await broker.produce("flights", batch(1), partition=1)).base_offset == 3
        first, second = controller.registrations
        assert (first.cluster_id, first.log_dir_ids) == (second.cluster_id, second.log_dir_ids)

    asyncio.run(scenario())


def test_heartbeats_report_only_metadata_that_the_replicas_have_applied(start_broker: StartBroker) -> None:
    async def scenario() -> None:
        async with start_broker() as (broker, controller):
            await controller.create_topic("flights", 20)
            await until(lambda: controller.heartbeats[-1].metadata_end_index >= len(controller.records))
            answers = await broker.fetch_many([("flights", number, 0) for number in range(20)])
            assert {answer.error_code for answer, _ in answers} == {0}

    asyncio.run(scenario())


def test_data_of_another_cluster_is_refused(start_broker: StartBroker) -> None:
    async def scenario() -> None:
        async with start_broker():
            pass
        with pytest.raises(LogDirError, match="data directory of another cluster"):
            async with start_broker(controller=ScriptedController("anotheranotheranother0")):
                pass

    asyncio.run(scenario())


def test_a_log_dir_that_another_broker_uses_is_refused(start_broker: StartBroker) -> None:
    async def scenario() -> None:
        async with start_broker() as (broker, controller):
            await controller.create_topic("flights")
            await broker.wait_for_topic("flights")
            with pytest.raises(LogDirError):
                async with start_broker():
                    pass
            assert (await broker.produce("flights", batch(1))).error_code == 0

    asyncio.run(scenario())


def test_a_start_without_a_controller_fails_after_the_registration_timeout(start_broker: StartBroker) -> None:
    configs = {
        "controller.quorum.bootstrap.servers": "localhost:1",
        "initial.broker.registration.timeout.ms": "200",
    }

    async def scenario() -> None:
        with pytest.raises(KlammError, match=r"no controller of localhost:1 answered within 200 ms"):
            async with start_broker(configs=configs):
                pass

    asyncio.run(scenario())


def partition_dirs(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "data").iterdir() if path.is_dir())


def test_the_partition_directories_of_a_deleted_topic_are_removed(start_broker: StartBroker, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with start_broker() as (broker, controller):
            await controller.create_topic("flights", 2, configs={"file.delete.delay.ms": "50"})
            await broker.wait_for_topic("flights", 2)
            await broker.produce("flights", batch(3))
            assert partition_dirs(tmp_path) == ["flights-0", "flights-1"]
            await controller.delete_topic("flights")
            await until(lambda: not partition_dirs(tmp_path))
            assert (await broker.produce("flights", batch(1))).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    asyncio.run(scenario())


def test_a_topic_that_was_recreated_while_the_broker_was_down_starts_empty(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    """The topic id in the directory distinguishes the two topics. The directory of a deleted topic is deleted too."""

    async def scenario() -> None:
        controller = ScriptedController()
        async with start_broker(controller=controller) as (broker, _):
            await controller.create_topic("flights")
            await controller.create_topic("trains")
            await controller.create_topic("kept")
            await broker.wait_for_topic("kept")
            for topic in ("flights", "trains", "kept"):
                await broker.produce(topic, batch(3))
        await controller.delete_topic("flights")
        await controller.delete_topic("trains")
        await controller.create_topic("flights")
        async with start_broker(controller=controller) as (broker, _):
            assert (await broker.fetch("flights"))[0].high_watermark == 0
            assert (await broker.fetch("kept"))[0].high_watermark == 3
            live = [name for name in partition_dirs(tmp_path) if not name.endswith("-delete")]
            assert live == ["flights-0", "kept-0"]

    asyncio.run(scenario())


class FailingDisk(Disk):
    """A disk on which writes and reads below one directory fail with one error."""

    def __init__(self) -> None:
        self.failing = ""
        self.errno = errno.EIO

    def _check(self, fd: int) -> None:
        if self.failing and os.readlink(f"/proc/self/fd/{fd}").startswith(self.failing):
            raise OSError(self.errno, os.strerror(self.errno))

    def writev(self, fd: int, buffers: Sequence[Buffer]) -> int:  # type: ignore[override]
        self._check(fd)
        return os.writev(fd, buffers)

    def preadv(self, fd: int, buffers: Sequence[memoryview], position: int, flags: int) -> int:  # type: ignore[override]
        self._check(fd)
        return os.preadv(fd, buffers, position, flags)


async def two_dirs(broker: RunningBroker, controller: ScriptedController, dirs: Sequence[str]) -> tuple[int, int]:
    """Creates a topic with a partition in each dir. Returns the two partition numbers, the first dir's first."""
    await controller.create_topic("flights", 2)
    await broker.wait_for_topic("flights", 2)
    in_first = 0 if os.path.isdir(f"{dirs[0]}/flights-0") else 1
    for number in (0, 1):
        await broker.produce("flights", batch(2), partition=number)
    return in_first, 1 - in_first


@pytest.mark.parametrize("meets", ["produce", "fetch"])
def test_a_log_dir_that_fails_goes_offline_and_the_other_serves_on(
    start_broker: StartBroker, tmp_path: Path, meets: str
) -> None:
    dirs = [f"{tmp_path}/a", f"{tmp_path}/b"]
    disk = FailingDisk()

    async def scenario() -> None:
        async with start_broker(configs={"log.dirs": ",".join(dirs)}, disk=disk) as (broker, controller):
            failed, healthy = await two_dirs(broker, controller, dirs)
            disk.failing = dirs[0]
            if meets == "produce":
                assert (await broker.produce("flights", batch(1), partition=failed)).error_code == 56
            both = await broker.fetch_many([("flights", failed, 0), ("flights", healthy, 0)])
            assert [(answer.error_code, len(records)) for answer, records in both] == [
                (ErrorCode.KAFKA_STORAGE_ERROR, 0),
                (0, len(batch(2))),
            ]
            assert (await broker.produce("flights", batch(1), partition=healthy)).base_offset == 2
            await until(lambda: len(controller.heartbeats[-1].offline_log_dir_ids) == 1)
            offline = controller.heartbeats[-1].offline_log_dir_ids[0]
            assert offline == controller.registrations[0].log_dir_ids[0]
            await until(lambda: controller.offline_replicas == {(controller.topic_ids["flights"], failed)})

    asyncio.run(scenario())


def test_replicas_of_an_unreadable_log_dir_are_not_recreated_elsewhere(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    dirs = [tmp_path / "a", tmp_path / "b"]
    configs = {"log.dirs": ",".join(map(str, dirs))}

    async def scenario() -> None:
        controller = ScriptedController()
        async with start_broker(controller=controller, configs=configs) as (broker, _):
            failed, healthy = await two_dirs(broker, controller, configs["log.dirs"].split(","))
        dirs[0].rename(tmp_path / "aside")
        dirs[0].write_text("not a directory")
        async with start_broker(controller=controller, configs=configs) as (broker, _):
            refused = await broker.produce("flights", batch(1), partition=failed)
            assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            await controller.change_leader("flights", failed, 1)
            await controller.create_topic("trains", 2)
            await broker.wait_for_topic("trains", 2)
            assert (await broker.fetch("flights", partition=failed))[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert (await broker.produce("flights", batch(1), partition=healthy)).base_offset == 2
            assert (await broker.produce("trains", batch(1), partition=1)).base_offset == 0
        dirs[0].unlink()
        (tmp_path / "aside").rename(dirs[0])
        async with start_broker(controller=controller, configs=configs) as (broker, _):
            assert (await broker.fetch("flights", partition=failed))[0].high_watermark == 2
            assert (await broker.fetch("flights", partition=healthy))[0].high_watermark == 3

    asyncio.run(scenario())


def test_an_unmounted_disk_is_not_mistaken_for_a_new_log_dir(
    start_broker: StartBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    dirs = [tmp_path / "a", tmp_path / "b"]
    configs = {"log.dirs": ",".join(map(str, dirs))}

    async def scenario() -> None:
        controller = ScriptedController()
        async with start_broker(controller=controller, configs=configs) as (broker, _):
            healthy, absent = await two_dirs(broker, controller, configs["log.dirs"].split(","))
        dirs[1].rename(tmp_path / "aside")
        dirs[1].mkdir()
        async with start_broker(controller=controller, configs=configs) as (broker, _):
            assert f"{dirs[1]} has no meta.properties" in caplog.text
            refused = await broker.produce("flights", batch(1), partition=absent)
            assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert (await broker.produce("flights", batch(1), partition=healthy)).base_offset == 2
            await controller.create_topic("trains", 2)
            await broker.wait_for_topic("trains", 2)
            assert (await broker.produce("trains", batch(1), partition=1)).base_offset == 0
        shutil.rmtree(dirs[1])
        (tmp_path / "aside").rename(dirs[1])
        async with start_broker(controller=controller, configs=configs) as (broker, _):
            assert (await broker.fetch("flights", partition=absent))[0].high_watermark == 2
            assert (await broker.fetch("flights", partition=healthy))[0].high_watermark == 3

    asyncio.run(scenario())


def test_replicas_of_a_log_dir_that_is_no_longer_configured_are_not_recreated(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    dirs = [f"{tmp_path}/a", f"{tmp_path}/b"]
    both, one = {"log.dirs": ",".join(dirs)}, {"log.dirs": dirs[0]}

    async def scenario() -> None:
        controller = ScriptedController()
        async with start_broker(controller=controller, configs=both) as (broker, _):
            healthy, absent = await two_dirs(broker, controller, dirs)
        async with start_broker(controller=controller, configs=one) as (broker, _):
            refused = await broker.produce("flights", batch(1), partition=absent)
            assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert (await broker.produce("flights", batch(1), partition=healthy)).base_offset == 2
        async with start_broker(controller=controller, configs=both) as (broker, _):
            assert (await broker.fetch("flights", partition=absent))[0].high_watermark == 2

    asyncio.run(scenario())


def test_replicas_of_a_log_dir_in_log_dirs_lost_are_created_again(start_broker: StartBroker, tmp_path: Path) -> None:
    dirs = [f"{tmp_path}/a", f"{tmp_path}/b"]
    configs = {"log.dirs": ",".join(dirs)}

    async def scenario() -> None:
        controller = ScriptedController()
        async with start_broker(controller=controller, configs=configs) as (broker, _):
            healthy, lost = await two_dirs(broker, controller, dirs)
        lost_id = MetaProperties.decode(dirs[1], Path(dirs[1], "meta.properties").read_bytes()).directory_id
        shutil.rmtree(dirs[1])
        said = configs | {"log.dirs.lost": encode_uuid(lost_id)}
        for settings, base_offset in ((said, 0), (configs, 1)):
            async with start_broker(controller=controller, configs=settings) as (broker, _):
                assert (await broker.produce("flights", batch(1), partition=lost)).base_offset == base_offset
                assert (await broker.fetch("flights", partition=healthy))[0].high_watermark == 2

    asyncio.run(scenario())


def test_new_partitions_are_placed_in_a_log_dir_that_was_added(start_broker: StartBroker, tmp_path: Path) -> None:
    async def scenario() -> None:
        controller = ScriptedController()
        async with start_broker(controller=controller, configs={"log.dirs": f"{tmp_path}/a"}) as (broker, _):
            await controller.create_topic("flights")
            await broker.wait_for_topic("flights")
        async with start_broker(controller=controller, configs={"log.dirs": f"{tmp_path}/b,{tmp_path}/a"}) as (
            broker,
            _,
        ):
            await controller.create_topic("trains")
            await broker.wait_for_topic("trains")
            assert Path(tmp_path, "b", "trains-0").is_dir()
            assert (await broker.produce("flights", batch(1))).base_offset == 0

    asyncio.run(scenario())


def test_a_write_to_a_full_disk_is_refused_and_later_writes_succeed(start_broker: StartBroker, tmp_path: Path) -> None:
    disk = FailingDisk()
    disk.errno = errno.ENOSPC

    async def scenario() -> None:
        async with start_broker(disk=disk) as (broker, controller):
            await controller.create_topic("flights")
            await broker.wait_for_topic("flights")
            await broker.produce("flights", batch(1))
            disk.failing = str(tmp_path)
            refused = await broker.produce("flights", batch(1))
            assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert "no space" in refused.error_message
            disk.failing = ""
            assert (await broker.produce("flights", batch(1))).base_offset == 1

    asyncio.run(scenario())


class FullDisk(Disk):
    """A disk without space for new files while it is `full`."""

    def __init__(self) -> None:
        self.full = True
        self.refusals = 0

    def pwrite(self, fd: int, data: Buffer, position: int) -> int:  # type: ignore[override]
        if self.full and "orders" in os.readlink(f"/proc/self/fd/{fd}"):
            self.refusals += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os.pwrite(fd, data, position)


def test_a_replica_refused_by_a_full_disk_is_created_when_space_is_free_without_a_new_image(
    start_broker: StartBroker,
) -> None:
    disk = FullDisk()

    async def scenario() -> None:
        async with start_broker(disk=disk, configs={"replica.fetch.backoff.ms": "20"}) as (broker, controller):
            await controller.create_topic("orders")
            await until(lambda: disk.refusals > 1)
            refused = await broker.produce("orders", batch(1))
            assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            disk.full = False
            while (answer := await broker.produce("orders", batch(1))).error_code:
                assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert answer.base_offset == 0

    asyncio.run(scenario())


def test_stopping_ends_streams_and_long_polls_at_once(start_broker: StartBroker) -> None:
    async def scenario() -> None:
        async with start_broker() as (broker, controller):
            await controller.create_topic("flights")
            await broker.wait_for_topic("flights")
            polling = asyncio.ensure_future(broker.fetch("flights", max_wait_ms=LONG_MS))
            await until(lambda: broker.parked_fetches == 1)
            async with asyncio.timeout(patience()):
                await broker.server.stop()
                answer, _ = await polling
            assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    asyncio.run(scenario())


def test_a_refused_registration_makes_the_start_fail(start_broker: StartBroker) -> None:
    class Refusing(ScriptedController):
        async def register_broker(self, request, context):
            response = await super().register_broker(request, context)
            response.error_code = ErrorCode.INCONSISTENT_CLUSTER_ID
            return response

    async def scenario() -> None:
        with pytest.raises(BrokerError, match="INCONSISTENT_CLUSTER_ID"):
            async with start_broker(controller=Refusing()):
                pass

    asyncio.run(scenario())


def test_expired_segments_are_deleted_and_a_fetch_before_the_log_start_names_it(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    configs = {"log.retention.check.interval.ms": "50", "log.segment.delete.delay.ms": "1"}
    topic_configs = {"segment.bytes": str(1024**2), "retention.bytes": str(1024**2), "retention.ms": "-1"}

    async def scenario() -> None:
        async with start_broker(configs=configs) as (broker, controller):
            await controller.create_topic("flights", configs=topic_configs)
            await broker.wait_for_topic("flights")
            for _ in range(8):
                await broker.produce("flights", batch(1, value=bytes(500_000)))
            directory = tmp_path / "data" / "flights-0"
            await until(lambda: len(list(directory.glob("*.log*"))) <= 3)
            answer, _ = await broker.fetch("flights", 0)
            assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
            assert answer.log_start_offset > 0
            answer, records = await broker.fetch("flights", answer.log_start_offset)
            assert (answer.error_code, answer.high_watermark, bool(records)) == (0, 8, True)

    asyncio.run(scenario())


class SlowDisk(Disk):
    """A disk that delays every new partition until `go` is set."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.held = threading.Event()

    def write_atomically(self, path: str, data: bytes) -> None:
        if path.endswith("/slow-0/partition.metadata"):
            self.held.set()
            assert self.go.wait(60)
        super().write_atomically(path, data)


def test_the_broker_serves_requests_while_it_creates_partitions(start_broker: StartBroker) -> None:
    """Heartbeats continue, and do not report partitions that are not created yet."""

    async def scenario() -> None:
        disk = SlowDisk()
        async with start_broker(disk=disk) as (broker, controller):
            await controller.create_topic("flights")
            await broker.wait_for_topic("flights")
            before = len(controller.records)
            await controller.create_topic("slow", 30)
            await until(disk.held.is_set)
            heartbeats = len(controller.heartbeats)
            assert (await broker.produce("flights", batch(1))).error_code == 0
            assert (await broker.produce("slow", batch(1))).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            await until(lambda: len(controller.heartbeats) >= heartbeats + 3)
            assert controller.heartbeats[-1].metadata_end_index == before
            disk.go.set()
            await broker.wait_for_topic("slow", 30)
            assert (await broker.produce("slow", batch(1), partition=29)).error_code == 0

    asyncio.run(scenario())


def test_a_stop_waits_until_partitions_are_created(start_broker: StartBroker, tmp_path: Path) -> None:
    async def scenario() -> None:
        disk = SlowDisk()
        controller = ScriptedController()
        async with start_broker(controller=controller, disk=disk) as (broker, _):
            await controller.create_topic("slow", 30)
            await until(disk.held.is_set)
            asyncio.get_running_loop().call_later(0.05, disk.go.set)
        assert (tmp_path / "data" / CLEAN_SHUTDOWN_FILE).exists()
        async with start_broker(controller=controller) as (broker, _):
            assert (await broker.produce("slow", batch(1), partition=29)).error_code == 0

    asyncio.run(scenario())


def test_a_partition_without_its_metadata_file_is_recreated_only_if_it_is_empty(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    async def scenario() -> None:
        controller = ScriptedController()
        async with start_broker(controller=controller) as (broker, _):
            await controller.create_topic("flights", 2)
            await broker.wait_for_topic("flights", 2)
            await broker.produce("flights", batch(3), partition=1)
        for number in range(2):
            (tmp_path / "data" / f"flights-{number}" / "partition.metadata").unlink()
        async with start_broker(controller=controller) as (broker, _):
            assert (await broker.produce("flights", batch(1), partition=0)).base_offset == 0
            refused = await broker.produce("flights", batch(1), partition=1)
            assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert "no partition.metadata" in refused.error_message

    asyncio.run(scenario())


def test_a_replica_starts_from_the_high_watermark_it_had(start_broker: StartBroker) -> None:
    """A leader that waits for a follower's report serves the records committed before.

    A leader without followers serves all.
    """

    async def scenario() -> None:
        controller = ScriptedController()
        async with start_broker(controller=controller) as (broker, _):
            await controller.create_topic("flights", replicas=(1, 2), isr=(1,))
            await controller.create_topic("trains")
            await broker.wait_for_topic("trains")
            await broker.produce("flights", batch(3))
            await broker.produce("trains", batch(3))
        await controller.change_isr("flights", 0, isr=(1, 2))
        async with start_broker(controller=controller) as (broker, _):
            await broker.produce("flights", batch(2), acks=1)
            await broker.produce("trains", batch(2), acks=1)
            assert (await broker.fetch("flights"))[0].high_watermark == 3
            assert (await broker.fetch("trains"))[0].high_watermark == 5

    asyncio.run(scenario())
