"""Tests which part of a log is on disk, and flushes that other flushes overtake."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from klamm_broker.log.files.storage_failure import DiskFull, LogDirFailure
from klamm_broker.log.log_config import LogConfig
from tests.support.open_files import open_files
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


def test_a_leader_owes_a_sync_after_flush_messages_records(harness, make_batch, faulty_disk) -> None:
    harness.disk = faulty_disk
    harness.config = LogConfig(flush_messages=5)
    log = harness.open()
    log.append_as_leader(make_batch(4), leader_epoch=0, now_ms=NOW)
    assert (log.flusher.owes_sync, log.flusher.acknowledgeable_offset) == (False, 4)
    assert not log.flusher.is_due(NOW)
    log.append_as_leader(make_batch(1), leader_epoch=0, now_ms=NOW)
    assert (log.flusher.owes_sync, log.flusher.acknowledgeable_offset) == (True, 0)
    assert log.flusher.is_due(NOW)
    assert "fdatasync" not in faulty_disk.calls
    log.flusher.flush(only_records=True)
    assert (log.flusher.owes_sync, log.flusher.acknowledgeable_offset) == (False, 5)


def test_a_flush_of_the_records_syncs_one_file_and_leaves_the_recovery_point(harness, make_batch, faulty_disk) -> None:
    harness.disk = faulty_disk
    harness.config = LogConfig(flush_messages=1)
    log = harness.open()
    log.append_as_leader(make_batch(1), leader_epoch=0, now_ms=NOW)
    log.flusher.flush(only_records=True)
    faulty_disk.calls.clear()
    log.append_as_leader(make_batch(1), leader_epoch=0, now_ms=NOW)
    log.flusher.flush(only_records=True)
    assert faulty_disk.calls.count("fdatasync") == 1
    assert (log.flusher.synced_offset, log.flusher.recovery_point) == (2, 0)
    assert not log.flusher.is_durable
    log.flusher.flush()
    assert (log.flusher.synced_offset, log.flusher.recovery_point) == (2, 2)


def test_a_follower_syncs_inside_the_append(harness, make_batch, faulty_disk) -> None:
    """Its next fetch tells the leader that it has the records."""
    harness.disk = faulty_disk
    harness.config = LogConfig(flush_messages=2)
    log = harness.open()
    log.append_as_follower(make_batch(1), leader_epoch=9, now_ms=NOW)
    assert "fdatasync" not in faulty_disk.calls
    log.append_as_follower(make_batch(1, base_offset=1), leader_epoch=9, now_ms=NOW)
    assert "fdatasync" in faulty_disk.calls
    assert log.flusher.synced_offset == 2


def test_a_follower_syncs_the_batches_before_one_that_found_the_disk_full(harness, make_batch, faulty_disk) -> None:
    harness.disk = faulty_disk
    harness.config = LogConfig(flush_messages=1, segment_bytes=150)
    log = harness.open()
    append, count = log._append, 0

    def fill_the_disk(*args) -> None:
        nonlocal count
        count += 1
        if count == 2:
            raise log.segments.failed(OSError(errno.ENOSPC, "full"), "append to")
        append(*args)

    log._append = fill_the_disk
    with pytest.raises(DiskFull):
        log.append_as_follower(make_batch(1) + make_batch(1, base_offset=1), leader_epoch=9, now_ms=NOW)
    assert (log.log_end_offset, log.flusher.synced_offset) == (1, 1)


def test_a_follower_keeps_no_batch_that_a_full_disk_does_not_sync(harness, make_batch, faulty_disk) -> None:
    harness.disk = faulty_disk
    harness.config = LogConfig(flush_messages=1)
    log = harness.open()
    log.append_as_follower(make_batch(1), leader_epoch=9, now_ms=NOW)
    faulty_disk.errors["fdatasync"] = errno.ENOSPC
    with pytest.raises(DiskFull):
        log.append_as_follower(make_batch(1, base_offset=1), leader_epoch=9, now_ms=NOW)
    assert (log.log_end_offset, log.flusher.synced_offset) == (1, 1)
    faulty_disk.errors.clear()
    log.append_as_follower(make_batch(1, base_offset=1), leader_epoch=9, now_ms=NOW)
    assert (log.log_end_offset, log.flusher.synced_offset) == (2, 2)


def test_a_flush_of_the_records_covers_the_segments_since_the_last_one(log, make_batch, harness) -> None:
    log.flusher.flush(only_records=True)
    fill(log, make_batch, 30)
    job = log.flusher.plan(only_records=True)
    assert len(job.log_fds) > 1
    job.run()
    log.flusher.complete(job)
    assert log.flusher.synced_offset == log.log_end_offset


def test_a_flush_of_the_records_that_a_truncation_overtakes_syncs_nothing(log, make_batch) -> None:
    job = log.flusher.plan(only_records=True)
    log.truncate_to(60, now_ms=NOW)
    fill(log, make_batch, 40)
    job.run()
    log.flusher.complete(job)
    assert log.flusher.synced_offset == 0


def test_a_flush_of_a_deleted_log_does_not_count_for_the_new_log_of_the_partition(log, harness) -> None:
    job = log.flusher.plan()
    job.run()
    log.close()
    shutil.rmtree(harness.directory)
    harness.directory.mkdir()
    new = harness.open()
    new.flusher.complete(job)
    assert (new.flusher.recovery_point, new.flusher.synced_offset) == (0, 0)


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
    before = open_files(log.directory)
    assert before
    for _ in range(3):
        log.flusher.flush()
    log.flusher.plan().discard()
    assert open_files(log.directory) == before


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
