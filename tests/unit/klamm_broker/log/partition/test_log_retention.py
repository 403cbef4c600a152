"""Tests which records of a log retention removes."""

from __future__ import annotations

import os
from pathlib import Path

from klamm_broker.log.log_config import LogConfig
from tests.support.partition_logs import NOW


def test_files_of_expired_segments_are_renamed_at_once_and_removed_later(log, harness) -> None:
    log.config = LogConfig(retention_ms=1_000, file_delete_delay_ms=60)
    second = log.segments.base_offsets[1]
    deletion = log.retention.apply(now_ms=NOW + 10 * ((second - 1) // 3) + 1_001, high_watermark=120)
    assert deletion is not None
    assert deletion.due_ms == NOW + 10 * ((second - 1) // 3) + 1_061
    assert log.segments.base_offsets[0] == second == log.log_start_offset
    assert {Path(path).name for path in deletion.paths} == {
        f"{0:020d}{suffix}.deleted" for suffix in (".log", ".index", ".timeindex")
    }
    assert all(Path(path).exists() for path in deletion.paths)
    assert not harness.path(0).exists()


def test_a_segment_without_an_index_file_expires_too(log, harness) -> None:
    harness.path(0, ".index").unlink()  # a full disk leaves such a file
    log.config = LogConfig(retention_ms=1_000)
    deletion = log.retention.apply(now_ms=10**12, high_watermark=log.segments.base_offsets[1])
    assert deletion is not None
    assert {Path(path).name for path in deletion.paths} == {
        f"{0:020d}{suffix}.deleted" for suffix in (".log", ".timeindex")
    }
    assert log.log_dir.failure is None


def test_all_records_may_expire_and_appends_continue_at_the_log_end(log, make_batch, read_all) -> None:
    log.retention.apply(now_ms=10**12, high_watermark=120)
    assert read_all(log) == []
    assert (log.log_start_offset, log.log_end_offset, log.segments.base_offsets) == (120, 120, (120,))
    result = log.append_as_leader(make_batch(1), leader_epoch=2, now_ms=NOW)
    assert result.base_offset == 120


def test_retention_deletes_no_segment_above_the_high_watermark(log) -> None:
    third = log.segments.base_offsets[2]
    log.retention.apply(now_ms=10**12, high_watermark=third)
    assert log.segments.base_offsets[0] == third


def test_retention_by_size_keeps_at_least_the_limit(log) -> None:
    log.config = LogConfig(retention_bytes=2_000, retention_ms=-1)
    log.retention.apply(now_ms=NOW, high_watermark=120)
    assert 2_000 <= log.segments.size_bytes < 2_000 + 1_024


def test_retention_without_expired_segments_deletes_nothing(log) -> None:
    assert log.retention.apply(now_ms=NOW, high_watermark=120) is None


def test_a_segment_without_timestamps_expires_by_its_modification_time(harness, make_batch) -> None:
    log = harness.open()
    for _ in range(40):
        log.append_as_leader(make_batch(3, timestamps=[-1] * 3), leader_epoch=0, now_ms=NOW)
    written_ms = int(harness.path(0).stat().st_mtime * 1000)
    log.config = LogConfig(retention_ms=1_000)
    assert log.retention.apply(now_ms=written_ms + 900, high_watermark=120) is None
    os.utime(harness.path(0), (1, 1))
    log.retention.apply(now_ms=written_ms + 900, high_watermark=120)
    assert log.log_start_offset > 0


def test_the_forecast_of_the_log_start_matches_what_retention_deletes_later(log) -> None:
    log.config = LogConfig(retention_ms=1_000)
    second = log.segments.base_offsets[1]
    due_ms = NOW + 10 * ((second - 1) // 3) + 1_001
    forecast = log.retention.forecast_start(now_ms=due_ms - 500, ahead_ms=500, high_watermark=120)
    assert (forecast, log.log_start_offset) == (second, 0)
    assert log.retention.forecast_start(now_ms=due_ms - 501, ahead_ms=500, high_watermark=120) == 0
    log.retention.apply(now_ms=due_ms, high_watermark=120)
    assert log.log_start_offset == forecast


def test_a_retention_forecast_on_a_failing_disk_keeps_the_log_dir_online(harness, make_batch) -> None:
    log = harness.open()
    log.append_as_leader(make_batch(3, timestamps=[-1] * 3), leader_epoch=0, now_ms=NOW)
    log.config = LogConfig(retention_ms=0)
    harness.path(0).rename(harness.path(0, ".elsewhere"))
    assert log.retention.forecast_start(now_ms=10**15, ahead_ms=1, high_watermark=3) == 0
    assert log.log_dir.failure is None
    harness.path(0, ".elsewhere").rename(harness.path(0))
    assert log.retention.forecast_start(now_ms=10**15, ahead_ms=1, high_watermark=3) == 3
