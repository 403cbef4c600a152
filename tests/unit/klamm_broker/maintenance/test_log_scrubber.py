"""Tests the running scrubber: it finds damage on disk, repairs it from another replica, or reports it."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from klamm.model import TopicId, TopicPartition
from klamm.records.encoder import encode_batch
from klamm_broker.io.replica_records import ReplicaUnreachable
from klamm_broker.log.log_config import LogConfig
from klamm_broker.log.partition.partition_log import PartitionLog
from klamm_broker.log.partition.pending_deletion import PendingDeletion
from klamm_broker.log.scrub.damage import Damage, DamageState
from klamm_broker.log.scrub.scrub_plan import SCRUB_FILE
from klamm_broker.maintenance.log_scrubber import LogScrubber
from klamm_broker.replica.leadership import IsrChange
from klamm_broker.replica.partition import Partition
from klamm_broker.replica.replica_manager import ReplicaManager
from klamm_server.config.broker_configs import BrokerConfig
from klamm_server.metadata.entities import PartitionImage
from klamm_server.runtime.clock import SystemClock
from klamm_server.runtime.disk import Disk
from tests.support.log_steps import create_log, delete_log, open_logs
from tests.support.waiting import until

NAME = TopicPartition("orders", 0)
TOPIC_ID = TopicId(uuid.UUID(int=7))
CONFIG = LogConfig(segment_bytes=4_096, index_interval_bytes=100, file_delete_delay_ms=0)
COUNT = 200


class Observer:
    def on_change(self, topic_partition: TopicPartition) -> None: ...
    def on_append(self, topic_partition: TopicPartition) -> None: ...
    def on_sync_owed(self, partition: Partition) -> None: ...
    def on_log_start(self, topic_partition: TopicPartition) -> None: ...
    def on_isr_change(self, partition: Partition, change: IsrChange) -> None: ...
    def on_role(self, partition: Partition) -> None: ...
    def on_offline(self, topic_id: bytes, partition: int) -> None: ...


class Broker:
    """Broker 1 with a replica, and broker 2's log of the same partition.

    Also plays the source of records and the controller.
    """

    def __init__(self, root: Path) -> None:
        self.root, self.other_root = root / "1", root / "2"
        self.logs = open_logs(self.root, node_id=1)
        self.other_logs = open_logs(self.other_root, node_id=2)
        self.replicas = ReplicaManager(broker_id=1, clock=SystemClock(), observer=Observer())
        self.retired: list[PendingDeletion] = []
        self.resigned: list[str] = []
        self.asked: list[tuple[int, bool]] = []
        self.is_reachable = True
        self.takes_over = True
        self.before_answer: Callable[[], None] = lambda: None
        self.log = create_log(self.logs, NAME, TOPIC_ID, CONFIG)
        self.other = create_log(self.other_logs, NAME, TOPIC_ID, CONFIG)
        for number in range(COUNT):
            batch = encode_batch(
                [(number, None, b"%04d" % number * 30, ())], base_offset=number, partition_leader_epoch=0
            )
            for log in (self.log, self.other):
                log.append_as_follower(batch, leader_epoch=9, now_ms=0)
        self.log.flusher.flush()
        self.partition = Partition(
            NAME,
            self.log,
            topic_id=TOPIC_ID,
            broker_id=1,
            high_watermark=COUNT,
            brokers=self.replicas.brokers,
            lag_time_max_ms=1_000,
        )
        self.replicas.host(self.partition)
        self.epoch = 0
        self.lead(2)
        self.scrubber = self.new_scrubber()

    def new_scrubber(self, *, bytes_per_second: int = 10**12) -> LogScrubber:
        scrubber = LogScrubber(
            self.logs,
            self.replicas,
            BrokerConfig(node_id=1, log_scrub_bytes_per_second=bytes_per_second, log_scrub_interval_ms=3_600_000),
            records=self,
            resigner=self,
            retire=self.retired.append,
            disk=Disk(),
            clock=SystemClock(),
            first_check_ms=0,
        )
        scrubber.load()
        return scrubber

    def lead(self, leader: int, isr: tuple[int, ...] = (1, 2)) -> None:
        self.epoch += 1
        image = PartitionImage(
            partition=0, replicas=(1, 2), isr=isr, leader=leader, leader_epoch=self.epoch, partition_epoch=self.epoch
        )
        self.replicas.apply(self.partition, image)

    async def fetch(
        self, broker_id: int, name: TopicPartition, offset: int, *, leader_epoch: int, from_follower: bool
    ) -> memoryview:
        self.asked.append((broker_id, from_follower))
        self.before_answer()
        if not self.is_reachable:
            raise ReplicaUnreachable("it is asleep")
        assert leader_epoch == self.epoch
        return memoryview(self.other.reader.read(offset, 500).records)

    def resign(self, key: tuple[bytes, int], reason: str) -> None:
        self.resigned.append(f"resign {key[1]}")
        if self.takes_over:
            asyncio.get_running_loop().call_soon(self._take_over)

    def _take_over(self) -> None:
        self.lead(2)
        self.scrubber.on_image()

    def resume(self, key: tuple[bytes, int], reason: str) -> None:
        self.resigned.append(f"resume {key[1]}")

    def path(self, slot: int, suffix: str = ".log", log: PartitionLog | None = None) -> Path:
        log = log or self.log
        return Path(log.directory) / f"{log.segments.base_offsets[slot]:020d}{suffix}"

    def flip(self, slot: int, at: int, suffix: str = ".log", log: PartitionLog | None = None) -> None:
        path = self.path(slot, suffix, log)
        data = bytearray(path.read_bytes())
        data[at] ^= 0x40
        path.write_bytes(data)

    def is_equal(self) -> bool:
        ours, theirs = Path(self.log.directory), Path(self.other.directory)
        return all((ours / path.name).read_bytes() == path.read_bytes() for path in theirs.glob("*.log"))

    @property
    def damages(self) -> list[Damage]:
        (status,) = self.scrubber.status()
        return list(status.damages)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.scrubber.run())
        try:
            yield
            assert not task.done(), task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self.scrubber.close()

    def run_until(self, condition: Callable[[], bool]) -> None:
        async def scenario() -> None:
            async with self.running():
                await until(condition, self.scrubber.status, pause_s=0)

        asyncio.run(scenario())

    def scrub(self) -> None:
        """Scrubs for one whole pass."""
        self.scrubber.ask(lambda _: True)
        self.run_until(lambda: not self.scrubber.status()[0].is_requested)


@pytest.fixture
def broker(tmp_path: Path, monkeypatch) -> Broker:
    monkeypatch.setattr("klamm_broker.maintenance.log_scrubber.ATTEMPT_PAUSE_MS", 0)
    return Broker(tmp_path)


def test_scrubbing_an_undamaged_log_changes_nothing(broker: Broker) -> None:
    before = {path: path.stat().st_mtime_ns for path in Path(broker.log.directory).iterdir()}
    broker.scrub()
    assert broker.damages == []
    assert {path: path.stat().st_mtime_ns for path in Path(broker.log.directory).iterdir()} == before
    assert broker.asked == []
    assert (broker.root / SCRUB_FILE).exists()


def test_a_follower_is_repaired_from_its_leader(broker: Broker, caplog) -> None:
    broker.flip(2, 1_000)
    broker.flip(2, 2_000)
    broker.flip(4, 10)
    with caplog.at_level(logging.WARNING):
        broker.scrub()
    assert broker.is_equal()
    broker.log.check_invariants()
    assert [damage.state for damage in broker.damages] == [DamageState.REPAIRED] * 2
    assert set(broker.asked) == {(2, False)}
    assert not broker.resigned
    assert broker.path(2).name in caplog.text
    assert "2 bytes changed, from broker 2" in caplog.text
    for deletion in broker.retired:
        broker.logs.deletion.remove_files(deletion)
    assert not list(Path(broker.log.directory).glob("*.deleted"))
    broker.scrubber = broker.new_scrubber()
    broker.scrub()
    assert broker.damages == []


def test_a_leader_hands_over_before_its_log_is_touched(broker: Broker) -> None:
    broker.lead(1)
    broker.flip(1, 500)
    damaged = broker.path(1).read_bytes()

    def check() -> None:
        assert broker.partition.is_leader
        assert broker.path(1).read_bytes() == damaged

    broker.before_answer = check
    broker.scrub()
    assert broker.is_equal()
    assert not broker.partition.is_leader
    assert broker.resigned == ["resign 0", "resume 0"]
    assert set(broker.asked) == {(2, True)}
    assert "handed over" in broker.damages[0].text


def test_a_leader_is_repaired_even_if_no_replica_takes_over(broker: Broker, monkeypatch) -> None:
    monkeypatch.setattr("klamm_broker.maintenance.log_scrubber.HAND_OVER_MS", 1)
    broker.lead(1)
    broker.takes_over = False
    broker.flip(1, 500)
    broker.scrub()
    assert broker.is_equal()
    assert broker.partition.is_leader
    assert broker.resigned == ["resign 0", "resume 0"]


def test_a_single_replica_reports_damage_and_leaves_its_log_unchanged(broker: Broker) -> None:
    broker.lead(1, isr=(1,))
    broker.flip(1, 500)
    damaged = broker.path(1).read_bytes()
    broker.scrub()
    (damage,) = broker.damages
    assert (damage.state, damage.text) == (DamageState.UNREPAIRED, "no other replica is in sync")
    assert broker.path(1).read_bytes() == damaged
    assert not broker.resigned
    assert broker.path(1).name in damage.lines[0]


def test_no_repair_is_made_from_a_replica_that_is_damaged_too(broker: Broker) -> None:
    broker.flip(1, 500)
    broker.flip(1, 501, log=broker.other)
    damaged = broker.path(1).read_bytes()
    broker.scrub()
    (damage,) = broker.damages
    assert "the replica's bytes are damaged too" in damage.text
    assert broker.path(1).read_bytes() == damaged
    assert not list(Path(broker.log.directory).glob("*.cleaned"))


def test_a_replica_that_refuses_a_repair_read_is_asked_again(broker: Broker) -> None:
    broker.is_reachable = False

    def come_back() -> None:
        broker.is_reachable = len(broker.asked) > 2

    broker.before_answer = come_back
    broker.flip(1, 500)
    broker.scrub()
    assert broker.is_equal()


def test_a_failed_repair_is_retried_after_a_restart(broker: Broker) -> None:
    broker.is_reachable = False
    broker.flip(1, 500)
    broker.scrub()
    assert "asleep" in broker.damages[0].text
    broker.is_reachable = True
    broker.scrubber = broker.new_scrubber()
    broker.run_until(broker.is_equal)
    assert broker.damages[0].state is DamageState.REPAIRED


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_damaged_index_is_rebuilt_without_asking_another_replica(broker: Broker, suffix: str) -> None:
    sound = broker.path(1, suffix).read_bytes()
    broker.flip(1, 7, suffix)
    broker.scrub()
    assert broker.path(1, suffix).read_bytes() == sound
    assert broker.damages[0].state is DamageState.REPAIRED
    assert broker.asked == []
    broker.log.check_invariants()


def test_wrong_leader_epochs_in_the_cache_are_dismissed_as_no_damage(broker: Broker) -> None:
    broker.log.epochs.assign(1, 30)
    broker.scrub()
    assert {damage.state for damage in broker.damages} == {DamageState.DISMISSED}
    assert broker.is_equal()
    assert not list(Path(broker.log.directory).glob("*.cleaned"))


def test_a_log_that_is_truncated_during_its_repair_is_left_alone(broker: Broker) -> None:
    broker.flip(4, 500)
    broker.before_answer = lambda: broker.log.truncate_to(broker.log.segments.base_offsets[3], now_ms=0) or None
    broker.scrub()
    assert broker.damages == []
    broker.log.check_invariants()
    assert not list(Path(broker.log.directory).glob("*.cleaned"))


def test_a_log_that_is_deleted_during_its_repair_is_forgotten(broker: Broker) -> None:
    broker.flip(1, 500)

    def delete() -> None:
        broker.replicas.drop(NAME)
        delete_log(broker.logs, NAME, now_ms=0)

    broker.before_answer = delete
    broker.run_until(lambda: NAME not in broker.logs.hosted.current)
    assert broker.scrubber.status() == []
    assert broker.logs.directories.offline() == {}


def test_damage_below_the_log_start_is_ignored(broker: Broker) -> None:
    broker.flip(1, 500)
    base = broker.log.segments.base_offsets[2]
    broker.log.advance_log_start(base - 1, high_watermark=COUNT)
    broker.scrub()
    assert broker.damages == []


def test_a_repair_on_a_full_disk_is_retried_later(broker: Broker, monkeypatch) -> None:
    def refuse(self: Disk, path: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    broker.flip(1, 500)
    with monkeypatch.context() as patched:
        patched.setattr(Disk, "sync_path", refuse)
        broker.scrub()
    assert "no space left" in broker.damages[0].text
    assert not list(Path(broker.log.directory).glob("*.cleaned"))
    assert broker.logs.directories.offline() == {}
    broker.scrubber = broker.new_scrubber()
    broker.scrub()
    assert broker.is_equal()


def test_a_disk_that_cannot_be_read_takes_its_log_dir_offline(broker: Broker, monkeypatch) -> None:
    def fail(self: Disk, fd: int, size_bytes: int, position: int = 0) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(Disk, "read_all", fail)
    broker.scrubber.ask(lambda _: True)
    broker.run_until(lambda: bool(broker.logs.directories.offline()))


def test_a_log_under_compaction_is_reported_and_not_repaired(broker: Broker) -> None:
    broker.log.replacement.is_under_way = True
    broker.flip(1, 500)
    broker.scrub()
    assert broker.damages[0].text == "the log is being compacted"


def test_the_scrubber_keeps_its_rate_and_stops_while_it_waits(broker: Broker) -> None:
    """The first segment alone would take an hour at this rate."""
    broker.scrubber = broker.new_scrubber(bytes_per_second=1)
    broker.run_until(lambda: broker.scrubber.status()[0].is_running)
    assert broker.scrubber.status()[0].mark.next_offset == 0
