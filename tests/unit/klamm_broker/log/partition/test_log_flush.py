"""Tests which part of a log is on disk, and flushes that other flushes overtake."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from klamm_broker.log.files.storage_failure import LogDirFailure
from klamm_broker.log.log_config import LogConfig
from tests.support.partition_logs import NOW, fill


def test_a_flush_moves_the_recovery_point_to_the_log_end(log) -> None:
    assert log.flusher.recovery_point == 0
    log.flusher.flush()
    assert log.flusher.recovery_point == 120
    assert not log.flusher.is_due(NOW)


def test_a_log_with_a_sealed_segment_is_due_for_a_flush(log, make_batch) -> None:
    assert log.flusher.is_due(NOW)
    log.flusher.flush()
    fill(log, make_batch, 20)
    assert log.flusher.is_due(NOW)


def test_a_log_is_due_for_a_flush_after_flush_ms(harness, make_batch) -> None:
    harness.config = LogConfig(flush_ms=500)
    log = harness.open()
    assert not log.flusher.is_due(10**9)
    log.append_as_leader(make_batch(1), leader_epoch=0, now_ms=NOW)
    assert not log.flusher.is_due(NOW + 499)
    assert log.flusher.is_due(NOW + 500)


def test_flush_messages_syncs_inside_the_append(harness, make_batch, faulty_disk) -> None:
    harness.disk = faulty_disk
    harness.config = LogConfig(flush_messages=5)
    log = harness.open()
    log.append_as_leader(make_batch(4), leader_epoch=0, now_ms=NOW)
    assert (log.flusher.recovery_point, faulty_disk.calls.count("fdatasync")) == (0, 0)
    log.append_as_leader(make_batch(1), leader_epoch=0, now_ms=NOW)
    assert log.flusher.recovery_point == 5
    assert "fdatasync" in faulty_disk.calls


def test_a_flush_succeeds_even_if_retention_deleted_its_segments(log, harness) -> None:
    job = log.flusher.plan()
    log.retention.apply(now_ms=10**12, high_watermark=120)
    for path in harness.directory.glob("*.deleted"):
        path.unlink()
    job.run()
    log.flusher.complete(job)
    assert log.flusher.recovery_point == 120


def test_a_flush_planned_before_a_truncation_does_not_move_the_recovery_point(log, make_batch) -> None:
    job = log.flusher.plan()
    log.truncate_to(60, now_ms=NOW)
    fill(log, make_batch, 40)
    job.run()
    log.flusher.complete(job)
    assert log.flusher.recovery_point == 0
    entries = Path(log.directory, "leader-epoch-checkpoint").read_text()
    assert entries == "0\n1\n2 0\n"


def test_a_flush_leaves_no_file_descriptor_open(log) -> None:
    log.flusher.flush()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        log.flusher.flush()
    log.flusher.plan().discard()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_failed_sync_takes_the_dir_offline(harness, make_batch, faulty_disk) -> None:
    harness.disk = faulty_disk
    log = harness.open()
    fill(log, make_batch, 3)
    faulty_disk.errors["fdatasync"] = errno.EIO
    with pytest.raises(LogDirFailure, match="Input/output error"):
        log.flusher.flush()
    faulty_disk.errors.clear()
    assert log.flusher.recovery_point == 0
    with pytest.raises(LogDirFailure, match="offline"):
        log.reader.read(0, 100)
