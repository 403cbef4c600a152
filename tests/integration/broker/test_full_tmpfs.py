"""A disk that is really full: a small tmpfs. Needs the right to mount."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from klamm import Admin, Consumer, NewTopic
from klamm.model import TopicId, TopicPartition
from klamm.records import decode_batch, encode_batch, iter_headers
from klamm_broker.log.dirs.log_manager import LogManager, LogManagerConfig
from klamm_broker.log.files.storage_failure import DiskFull
from klamm_broker.log.log_config import LogConfig
from klamm_broker.log.partition.partition_log import PartitionLog
from klamm_server.runtime.disk import Disk
from tests.support.kafka_wire import KafkaWire
from tests.support.klamm_process import running_cluster
from tests.support.log_steps import create_log
from tests.support.pipelined_producer import PipelinedProducer
from tests.support.small_disk import fill, make_space, small_disk
from tests.support.waiting import wait_until

ORDERS = TopicPartition("orders", 0)
CONFIG = LogConfig(segment_bytes=200_000, file_delete_delay_ms=0)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", 1) as path:
        yield path


def start(path) -> LogManager:
    config = LogManagerConfig(log_dirs=(str(path),), node_id=1)
    manager = LogManager(config, Disk(), random.Random(3))
    manager.load("one", lambda topic: CONFIG, now_ms=0)
    return manager


def append_until_full(log, batch: bytes) -> int:
    appended = 0
    while True:
        try:
            log.append_as_leader(batch, leader_epoch=1, now_ms=1_000)
        except DiskFull:
            return appended
        appended += 1
        assert appended < 10_000


def read_all(log: PartitionLog) -> list[int]:
    """Returns the offset of every record from the log start on."""
    found: list[int] = []
    offset = log.log_start_offset
    while data := log.reader.read(offset, 100_000).records:
        for position, header in iter_headers(data):
            found += [record.offset for record in decode_batch(data, position)]
            offset = header.next_offset
    return found


def test_a_log_on_a_full_disk_keeps_its_records_over_a_restart_and_accepts_writes_after_deletion(disk) -> None:
    manager = start(disk)
    log = create_log(manager, ORDERS, TopicId(uuid.UUID(int=1)), CONFIG)
    batch = bytes(encode_batch([(1_000, b"k", bytes(3_000), ())]))
    written = append_until_full(log, batch)
    assert written > 100
    before = read_all(log)
    assert len(before) == written
    log.check_invariants()

    for appended in manager.hosted.current.values():
        appended.abandon()
    manager.directories.unlock()
    manager = start(disk)
    assert not manager.directories.offline()
    log = manager.get(ORDERS)
    assert log is not None
    assert read_all(log) == before
    assert append_until_full(log, batch) == 0

    log.config = LogConfig(segment_bytes=200_000, retention_bytes=300_000, file_delete_delay_ms=0)
    deletion = log.retention.apply(now_ms=1_000, high_watermark=log.log_end_offset)
    assert deletion is not None
    manager.deletion.remove_files(deletion)
    assert append_until_full(log, batch) > 50
    assert not manager.directories.offline()
    manager.close(broker_epoch=1)


def test_the_batches_after_one_that_a_full_disk_refused_are_refused_like_it(tmp_path: Path) -> None:
    """They are accepted in order when there is space. `tests/clients/test_full_disk.py` compares with Kafka."""
    with small_disk(tmp_path / "small", 64) as disk, running_cluster(disk) as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.create_topics([NewTopic("orders", 1, 1)])
        with KafkaWire(cluster.kafka_bootstrap) as wire:
            producer = PipelinedProducer(wire, "orders")
            assert producer.send([b"0", b"1"], first_sequence=0) == [ErrorCode.none] * 2
            fill(disk, left_bytes=64 << 10)
            too_large_and_small = [bytes(500_000), b"3", b"4"]
            refused = producer.send(too_large_and_small, first_sequence=2)
            assert refused == [ErrorCode.kafka_storage_error] * 3
            make_space(disk)
            assert producer.send(too_large_and_small, first_sequence=2) == [ErrorCode.none] * 3
        with Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([ORDERS])
            found: list[int] = []
            wait_until(
                lambda: len(found) == 5,
                lambda: found,
                between=lambda: found.extend(len(one.value) for one in consumer.poll(200).get(ORDERS, ())),
            )
        assert found == [1, 1, 500_000, 1, 1]
