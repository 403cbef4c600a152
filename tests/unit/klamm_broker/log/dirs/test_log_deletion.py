"""Tests the deletion of logs: the files after a crash, and the state that the next log of that name starts with."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from klamm.model import TopicPartition
from klamm_broker.log.files.storage_failure import DiskFull
from tests.support.log_managers import NOW, create, fill
from tests.support.log_steps import delete_log


def test_a_deleted_logs_directory_is_renamed_at_once_and_removed_after_the_delay(manager, harness, make_batch) -> None:
    log = create(manager, 0)
    fill(log, make_batch)
    deletion = delete_log(manager, TopicPartition("orders", 0), now_ms=NOW)
    assert manager.get(TopicPartition("orders", 0)) is None
    assert not Path(log.directory).exists()
    (path,) = deletion.paths
    assert Path(path).name.startswith("orders-0.")
    assert path.endswith("-delete")
    assert deletion.due_ms == NOW + 60
    manager.deletion.remove_files(deletion)
    assert not Path(path).exists()
    manager.deletion.remove_files(deletion)


def test_a_partition_can_be_created_again_at_once_after_its_deletion(manager, make_batch) -> None:
    fill(create(manager, 0), make_batch)
    delete_log(manager, TopicPartition("orders", 0), now_ms=NOW)
    assert create(manager, 0).log_end_offset == 0


def test_a_log_created_after_a_deletion_does_not_inherit_offsets_of_the_deleted_one(
    manager, harness, make_batch
) -> None:
    log = create(manager, 0)
    fill(log, make_batch, 40)
    log.flusher.flush()
    for job in manager.checkpoints.plan({TopicPartition("orders", 0): 80}):
        job.run()
    delete_log(manager, TopicPartition("orders", 0), now_ms=NOW)
    fill(create(manager, 0), make_batch, 20)
    harness.crash(manager)
    again = harness.start()
    log = again.get(TopicPartition("orders", 0))
    assert (log.log_end_offset, log.flusher.recovery_point) == (40, 0)
    assert again.checkpoints.high_watermark(log) == 0


def test_the_next_start_removes_a_deleted_log_if_the_broker_crashed_before(manager, harness, make_batch) -> None:
    fill(create(manager, 0), make_batch)
    deletion = delete_log(manager, TopicPartition("orders", 0), now_ms=NOW)
    harness.crash(manager)
    again = harness.start()
    assert not again.hosted.current
    assert [found.paths for found in harness.deletions] == [deletion.paths]


def test_the_directory_name_of_a_deleted_log_fits_the_file_system(manager) -> None:
    topic = "t" * 249
    create(manager, 0, topic)
    deletion = delete_log(manager, TopicPartition(topic, 0), now_ms=NOW)
    assert len(Path(deletion.paths[0]).name) == 255


def test_a_flush_planned_before_the_deletion_of_a_log_fails_no_dir(manager, make_batch) -> None:
    log = create(manager, 0)
    fill(log, make_batch)
    job = log.flusher.plan()
    deletion = delete_log(manager, TopicPartition("orders", 0), now_ms=NOW)
    manager.deletion.remove_files(deletion)
    job.run()
    manager.complete_flush(job)
    assert not manager.directories.offline()


def test_a_deletion_on_a_full_disk_is_retried_and_then_frees_the_name(manager, faulty_disk) -> None:
    name = TopicPartition("orders", 0)
    former = create(manager, 0)
    (job,) = manager.deletion.plan([name], now_ms=NOW)
    faulty_disk.errors["pwrite"] = errno.ENOSPC
    with pytest.raises(DiskFull):
        job.run()
    manager.deletion.postpone(job)
    with pytest.raises(DiskFull, match="whose deleted log still occupies the directory name"):
        create(manager, 0)
    faulty_disk.errors.clear()
    (again,) = manager.deletion.take_postponed()
    again.run()
    (deletion,) = manager.deletion.complete(again)
    assert not manager.deletion.take_postponed()
    assert not Path(former.directory).exists()
    assert create(manager, 0).log_end_offset == 0
    manager.deletion.remove_files(deletion)
    assert not Path(deletion.paths[0]).exists()
