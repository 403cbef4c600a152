"""A disk that is really full: a small tmpfs, filled up by appends. Needs the right to mount."""

from __future__ import annotations

import random
import subprocess
import uuid

import pytest

from klamm.model import TopicId, TopicPartition
from klamm.records import decode_batch, encode_batch, iter_headers
from klamm_broker.log.dirs.log_manager import LogManager, LogManagerConfig
from klamm_broker.log.files.disk import Disk
from klamm_broker.log.files.storage_failure import DiskFull
from klamm_broker.log.log_config import LogConfig
from klamm_broker.log.partition.partition_log import PartitionLog
from tests.support.log_steps import create_log
from tests.support.waiting import patience

ORDERS = TopicPartition("orders", 0)
CONFIG = LogConfig(segment_bytes=200_000, file_delete_delay_ms=0)


@pytest.fixture
def small_disk(tmp_path):
    path = tmp_path / "disk"
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(path)]
    try:
        mounted = subprocess.run(command, capture_output=True, text=True, timeout=patience(), check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if mounted.returncode:
        pytest.skip(f"cannot mount a tmpfs: {mounted.stderr.strip()}")
    yield path
    subprocess.run(["umount", "--lazy", str(path)], check=True, timeout=patience())


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


def test_a_log_on_a_full_disk_keeps_its_records_over_a_restart_and_accepts_writes_after_deletion(small_disk) -> None:
    manager = start(small_disk)
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
    manager = start(small_disk)
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
