"""Tests the running cleaner: which log it picks, why it skips a log, and how it stops."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import uuid
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from klamm.model import TopicId, TopicPartition
from klamm.records import decode_batch, encode_batch, iter_headers
from klamm_broker.io.throttle import Throttle, ThrottleStopped
from klamm_broker.log.log_config import LogConfig
from klamm_broker.log.partition.partition_log import PartitionLog
from klamm_broker.log.partition.pending_deletion import PendingDeletion
from klamm_broker.maintenance.log_cleaner import LogCleaner
from klamm_server.config.broker_configs import BrokerConfig
from klamm_server.config.server_config import load
from klamm_server.config.topic_configs import MIB
from klamm_server.metrics.prometheus import registry
from klamm_server.runtime.clock import SystemClock
from klamm_server.runtime.disk import Disk
from tests.support.log_steps import create_log, open_logs
from tests.support.waiting import until

CONFIG = LogConfig(segment_bytes=2_000, cleanup_policy=("compact",), file_delete_delay_ms=0)
SETTINGS = load(
    BrokerConfig,
    {
        "node.id": "1",
        "log.cleaner.dedupe.buffer.size": str(4 * MIB),
        "log.cleaner.io.buffer.size": "4096",
        "log.cleaner.backoff.ms": "0",
    },
)
DEADLINE_S = 60


@dataclass(frozen=True)
class Replica:
    """A replica whose log is fully committed."""

    log: PartitionLog

    @property
    def last_stable_offset(self) -> int:
        return self.log.log_end_offset


class Broker:
    """The logs and replicas that the cleaner sees."""

    def __init__(self, root: Path) -> None:
        self.logs = open_logs(root)
        self.replicas: list[Replica] = []
        self.retired: list[PendingDeletion] = []

    def host(self, number: int, config: LogConfig = CONFIG) -> PartitionLog:
        name = TopicPartition("states", number)
        log = create_log(self.logs, name, TopicId(uuid.UUID(int=number + 1)), config)
        self.replicas.append(Replica(log))
        return log

    def fill(self, log: PartitionLog, count: int = 60) -> None:
        """Appends records of three keys and flushes them."""
        now_ms = SystemClock().wall_ms()
        for number in range(count):
            log.append_as_leader(
                encode_batch([(now_ms, b"key-%d" % (number % 3), b"v" * 50, ())]), leader_epoch=0, now_ms=now_ms
            )
        log.flusher.flush()

    @contextlib.asynccontextmanager
    async def cleaning(self, config: BrokerConfig = SETTINGS) -> AsyncIterator[LogCleaner]:
        cleaner = LogCleaner(
            self.logs, self.replicas, config, retire=self.retired.append, disk=Disk(), clock=SystemClock()
        )
        task = asyncio.create_task(cleaner.run())
        try:
            yield cleaner
            assert not task.done(), task
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            cleaner.close()


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker(tmp_path)


def left(log: PartitionLog) -> int:
    """Returns the number of records in the log."""
    count, offset = 0, log.log_start_offset
    while data := log.reader.read(offset, 10**6).records:
        for position, header in iter_headers(data):
            count += len(decode_batch(data, position))
            offset = header.next_offset
    return count


def metric(name: str) -> float:
    lines = generate_latest(registry()).decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"klamm_broker_log_cleaner_{name} "))


def is_clean(log: PartitionLog) -> bool:
    return log.compaction.cleaned_to_offset == log.segments.base_offsets[-1] > 0


def cleaned_now(logs: Iterable[PartitionLog]) -> int:
    """Returns the number of logs that the cleaner is cleaning."""
    return sum(log.replacement.is_under_way for log in logs)


def test_the_cleaner_cleans_only_logs_of_compacted_topics(broker: Broker) -> None:
    compacted, other = broker.host(0), broker.host(1, LogConfig(segment_bytes=2_000))
    broker.fill(compacted)
    broker.fill(other)

    async def scenario() -> None:
        async with broker.cleaning():
            await until(lambda: metric("runs_total") > runs)

    runs = metric("runs_total")
    usual = sys.getswitchinterval()
    asyncio.run(scenario())
    assert sys.getswitchinterval() == usual
    assert (left(other), other.compaction.cleaned_to_offset) == (60, 0)
    assert left(compacted) < 25
    assert metric("runs_total") == runs + 1
    assert metric("uncleanable_partitions") == 0
    assert all(path.endswith(".deleted") for deletion in broker.retired for path in deletion.paths)
    checkpoint = Path(compacted.log_dir.path, "cleaner-offset-checkpoint").read_text()
    assert checkpoint == f"0\n1\nstates 0 {compacted.compaction.cleaned_to_offset}\n"
    recovery_points = Path(compacted.log_dir.path, "recovery-point-offset-checkpoint").read_text()
    assert f"states 0 {compacted.log_end_offset}\n" in recovery_points


def test_the_dirtiest_log_is_cleaned_first(broker: Broker) -> None:
    first, second = broker.host(0), broker.host(1)
    for log in (first, second):
        broker.fill(log)
    first.compaction.cleaned_to_offset = first.segments.base_offsets[1]
    order: list[TopicPartition] = []

    async def scenario() -> None:
        async with broker.cleaning():
            while len(order) < 2:
                for log in (first, second):
                    if is_clean(log) and log.topic_partition not in order:
                        order.append(log.topic_partition)
                await asyncio.sleep(0)

    asyncio.run(asyncio.wait_for(scenario(), DEADLINE_S))
    assert order == [second.topic_partition, first.topic_partition]


def test_a_log_below_the_dirty_ratio_is_cleaned_only_after_the_max_compaction_lag(broker: Broker) -> None:
    log, sign = broker.host(0, replace(CONFIG, min_cleanable_dirty_ratio=0.9)), broker.host(1)
    broker.fill(log)
    log.compaction.cleaned_to_offset = start = log.segments.base_offsets[1]
    broker.fill(sign)

    async def scenario() -> None:
        async with broker.cleaning():
            await until(lambda: is_clean(sign))
            assert log.compaction.cleaned_to_offset == start
            log.config = replace(log.config, max_compaction_lag_ms=1)
            await until(lambda: is_clean(log))

    asyncio.run(scenario())


def test_an_idle_log_is_cleaned_after_the_max_compaction_lag(broker: Broker) -> None:
    log = broker.host(0, replace(CONFIG, segment_bytes=10**6, max_compaction_lag_ms=100))
    broker.fill(log)
    assert log.segments.base_offsets == (0,)

    async def scenario() -> None:
        async with broker.cleaning():
            await until(lambda: len(log.segments.base_offsets) > 1)
            log.flusher.flush()
            await until(lambda: is_clean(log))

    asyncio.run(scenario())
    assert left(log) == 3


def test_a_damaged_batch_makes_the_partition_uncleanable_and_nothing_else(broker: Broker, caplog) -> None:
    damaged, other = broker.host(0), broker.host(1)
    for log in (damaged, other):
        broker.fill(log)
    path = Path(damaged.directory, f"{0:020d}.log")
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)

    async def scenario() -> None:
        async with broker.cleaning():
            await until(lambda: is_clean(other) and metric("uncleanable_partitions") == 1)
            broker.fill(other)
            await until(lambda: is_clean(other))

    asyncio.run(scenario())
    assert damaged.compaction.cleaned_to_offset == 0
    assert metric("uncleanable_bytes") > 0
    lines = [record.message for record in caplog.records if "uncleanable" in record.message]
    assert len(lines) == 1
    assert "states-0" in lines[0]
    damaged.append_as_leader(encode_batch([(0, b"k", b"v", ())]), leader_epoch=0, now_ms=0)


def test_a_log_that_was_truncated_during_a_cleaning_is_cleaned_later(broker: Broker) -> None:
    log = broker.host(0)
    broker.fill(log, 200)

    async def scenario() -> None:
        # At this rate the cleaning lasts until the settings change.
        slow = replace(SETTINGS, log_cleaner_io_max_bytes_per_second=1.0)
        async with broker.cleaning(slow) as cleaner:
            await until(lambda: log.replacement.is_under_way)
            log.truncate_to(150, now_ms=0)
            cleaner.reconfigure(SETTINGS)
            await until(lambda: not log.replacement.is_under_way, pause_s=0)  # the next cleaning comes soon
            assert (log.compaction.cleaned_to_offset, left(log)) == (0, 150)
            await until(lambda: is_clean(log))

    asyncio.run(scenario())
    assert left(log) < 60


def test_a_stop_ends_a_cleaning_at_once(broker: Broker) -> None:
    log = broker.host(0)
    broker.fill(log, 200)

    async def scenario() -> None:
        async with broker.cleaning(replace(SETTINGS, log_cleaner_io_max_bytes_per_second=10.0)):
            await until(lambda: log.replacement.is_under_way)

    asyncio.run(scenario())
    assert (log.compaction.cleaned_to_offset, left(log)) == (0, 200)
    assert not list(Path(log.directory).glob("*.cleaned"))


def test_a_higher_io_rate_ends_the_cleaners_wait(broker: Broker) -> None:
    log = broker.host(0)
    broker.fill(log, 200)

    async def scenario() -> None:
        async with broker.cleaning(replace(SETTINGS, log_cleaner_io_max_bytes_per_second=1.0)) as cleaner:
            await until(lambda: log.replacement.is_under_way)
            cleaner.reconfigure(SETTINGS)
            await until(lambda: is_clean(log))

    asyncio.run(scenario())
    assert left(log) < 60


def test_the_number_of_cleaner_threads_follows_the_config(broker: Broker) -> None:
    logs = [broker.host(number) for number in range(3)]
    for log in logs:
        broker.fill(log, 200)
    slow = replace(SETTINGS, log_cleaner_io_max_bytes_per_second=1.0)

    async def scenario() -> None:
        async with broker.cleaning(slow) as cleaner:
            await until(lambda: cleaned_now(logs) == 1)
            held_bytes = cleaner.dedupe_buffer_bytes
            cleaner.reconfigure(replace(slow, log_cleaner_threads=3))
            await until(lambda: cleaned_now(logs) == 3)
            assert held_bytes == SETTINGS.log_cleaner_dedupe_buffer_size
            assert cleaner.dedupe_buffer_bytes == held_bytes + 2 * MIB, "what is under way has its buffer already"
            cleaner.reconfigure(SETTINGS)
            await until(lambda: cleaner.worker_count == 1)
            await until(lambda: all(map(is_clean, logs)))
            broker.fill(logs[0])
            cleaner.reconfigure(replace(SETTINGS, log_cleaner_threads=2))
            await until(lambda: is_clean(logs[0]) and not cleaned_now(logs))
            assert cleaner.dedupe_buffer_bytes == 0

    asyncio.run(scenario())


def test_a_changed_cleaner_backoff_applies_at_once(broker: Broker) -> None:
    log = broker.host(0)

    async def scenario() -> None:
        async with broker.cleaning(replace(SETTINGS, log_cleaner_backoff_ms=3_600_000)) as cleaner:
            await until(lambda: cleaner.worker_count == 1)
            await asyncio.sleep(0)
            broker.fill(log)
            cleaner.reconfigure(SETTINGS)
            await until(lambda: is_clean(log))

    asyncio.run(scenario())


class WaitingClock:
    """A clock that is also the event that a throttle waits for. A wait moves its time forward."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic_s(self) -> float:
        return self.now_s

    def wait(self, timeout_s: float) -> None:
        self.now_s += timeout_s

    def set(self) -> None:
        """Does nothing, because no thread waits for this event."""


def test_the_cleaners_throttle_keeps_its_rate_and_stops() -> None:
    clock = WaitingClock()
    throttle = Throttle(1_000_000.0, monotonic_s=clock.monotonic_s, make_wake=lambda: clock)
    for _ in range(40):
        throttle(10_000)
    # The throttle does not wait for less than 50 ms, so it still owes that much.
    assert 100.34 < clock.now_s < 100.41
    throttle.stop()
    with pytest.raises(ThrottleStopped):
        throttle(0)
