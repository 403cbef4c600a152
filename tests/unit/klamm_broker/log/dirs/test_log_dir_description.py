"""Tests DescribeLogDirs for a dir that works and for one that failed."""

from __future__ import annotations

import errno

import pytest

from klamm.errors import ErrorCode
from klamm_broker.log.files.storage_failure import LogDirFailure
from tests.support.log_managers import NOW, create, fill


def test_describe_log_dirs_reports_replicas_and_space_and_the_error_of_a_failed_dir(
    manager, harness, make_batch, faulty_disk
) -> None:
    log = create(manager, 0)
    fill(log, make_batch)
    rows = {row.path: row for row in manager.describe_log_dirs()}
    row = rows[log.log_dir.path]
    (replica,) = row.replicas
    assert (replica.log, replica.is_future, replica.offset_lag) == (log, False, 0)
    assert row.total_bytes >= row.usable_bytes > 0
    assert row.error_code is ErrorCode.NONE
    assert row.directory_id == manager.directories.ids()[log.log_dir.path]
    faulty_disk.errors["writev"] = errno.EIO
    with pytest.raises(LogDirFailure):
        log.append_as_leader(make_batch(1), leader_epoch=1, now_ms=NOW)
    rows = {row.path: row for row in manager.describe_log_dirs()}
    assert rows[log.log_dir.path].error_code is ErrorCode.KAFKA_STORAGE_ERROR
    assert rows[log.log_dir.path].usable_bytes == -1
