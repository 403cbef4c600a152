"""Tests several log dirs: the placement of logs, the effects of a failed dir, and clean stops versus crashes."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from klamm.errors import ErrorCode
from klamm.model import TopicPartition
from klamm_broker.log.files.storage_failure import DiskFull, LogDirError, LogDirFailure
from klamm_broker.log.log_config import LogConfig
from tests.support.log_managers import NOW, TOPIC_ID, create, fill


class TestPlacement:
    def test_a_new_log_is_placed_in_the_dir_with_the_fewest_logs(self, manager, harness) -> None:
        used = [create(manager, partition).log_dir.path for partition in range(6)]
        assert [used.count(path) for path in harness.dirs] == [2, 2, 2]

    def test_the_manager_finds_a_created_log_and_no_other(self, manager) -> None:
        log = create(manager, 0)
        assert manager.get(TopicPartition("orders", 0)) is log
        assert manager.get(TopicPartition("orders", 1)) is None

    def test_a_start_leaves_directories_that_are_no_partitions_alone(self, manager, harness) -> None:
        other = Path(harness.dirs[0], "lost+found")
        other.mkdir()
        harness.crash(manager)
        harness.start()
        assert other.exists()


class TestRestart:
    def test_logs_and_the_broker_epoch_survive_a_clean_stop(self, manager, harness, make_batch) -> None:
        for partition in range(4):
            fill(create(manager, partition), make_batch)
        manager.get(TopicPartition("orders", 2)).advance_log_start(7, high_watermark=20)
        manager.close(broker_epoch=33)
        harness.running.clear()
        again = harness.start()
        assert again.directories.clean_shutdown_epoch() == 33
        assert sorted(again.hosted.current) == [("orders", partition) for partition in range(4)]
        for partition in range(4):
            log = again.get(TopicPartition("orders", partition))
            assert (log.log_end_offset, log.flusher.recovery_point, log.topic_id) == (20, 20, TOPIC_ID)
            assert log.log_start_offset == (7 if partition == 2 else 0)
            log.check_invariants()

    def test_a_log_with_a_torn_tail_is_truncated_after_a_crash(self, manager, harness, make_batch) -> None:
        log = create(manager, 0)
        fill(log, make_batch, 20)
        log.flusher.flush()
        for job in manager.checkpoints.plan({}):
            job.run()
        fill(log, make_batch, 20)
        path = Path(log.directory, f"{log.segments.base_offsets[-1]:020d}.log")
        harness.crash(manager)
        path.write_bytes(path.read_bytes()[:-1])
        again = harness.start()
        assert again.directories.clean_shutdown_epoch() is None
        log = again.get(TopicPartition("orders", 0))
        assert (log.log_end_offset, log.flusher.recovery_point) == (78, 40)
        log.check_invariants()

    def test_recovered_records_are_synced_if_flush_messages_requires_it(self, manager, harness, make_batch) -> None:
        fill(create(manager, 0), make_batch)
        harness.crash(manager)
        harness.log_config = LogConfig(flush_messages=1)
        log = harness.start().get(TopicPartition("orders", 0))
        assert (log.log_end_offset, log.flusher.synced_offset, log.flusher.recovery_point) == (20, 20, 0)

    def test_the_clean_shutdown_marker_counts_for_one_start_only(self, manager, harness) -> None:
        manager.close(broker_epoch=1)
        harness.running.clear()
        harness.crash(harness.start())
        assert harness.start().directories.clean_shutdown_epoch() is None

    @pytest.mark.parametrize("name", ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint"])
    def test_a_dir_with_a_damaged_checkpoint_stays_online(self, manager, harness, make_batch, name) -> None:
        log = create(manager, 0)
        fill(log, make_batch)
        manager.close(broker_epoch=1)
        harness.running.clear()
        Path(log.log_dir.path, name).write_text("rubbish")
        again = harness.start()
        assert again.get(TopicPartition("orders", 0)).log_end_offset == 20
        assert not again.directories.offline()

    def test_a_partition_in_two_dirs_stops_the_start(self, manager, harness) -> None:
        log = create(manager, 0)
        harness.crash(manager)
        other = next(path for path in harness.dirs if path != log.log_dir.path)
        Path(other, "orders-0").mkdir()
        with pytest.raises(LogDirError, match="orders-0 is in two log directories"):
            harness.start()


class TestFailingDir:
    @pytest.fixture
    def logs(self, manager, make_batch):
        logs = [create(manager, partition) for partition in range(6)]
        for log in logs:
            fill(log, make_batch)
        return logs

    @pytest.mark.parametrize("operation", ["writev", "pread", "fdatasync", "open", "replace"])
    @pytest.mark.parametrize("number", [errno.EIO, errno.EROFS])
    def test_a_failing_dir_goes_offline_and_the_other_dirs_continue_to_serve(
        self, manager, logs, harness, make_batch, faulty_disk, operation, number
    ) -> None:
        failing = harness.dirs[1]
        faulty_disk.errors[operation] = number
        faulty_disk.only_below = failing
        failures: list[LogDirFailure] = []
        for log in logs:
            try:
                log.append_as_leader(make_batch(2), leader_epoch=1, now_ms=NOW)
                log.reader.read(0, 100)
                log.flusher.flush()
                log.truncate_to(20, now_ms=NOW)
            except LogDirFailure as error:
                failures.append(error)
        for job in manager.checkpoints.plan({}):
            try:
                job.run()
            except LogDirFailure as error:
                failures.append(error)
        faulty_disk.errors.clear()
        assert {(error.log_dir, error.code) for error in failures} == {(failing, ErrorCode.KAFKA_STORAGE_ERROR)}
        assert list(manager.directories.offline()) == [failing]
        for log in logs:
            if log.log_dir.path == failing:
                with pytest.raises(LogDirFailure):
                    log.reader.read(0, 100)
                with pytest.raises(LogDirFailure):
                    log.append_as_leader(make_batch(1), leader_epoch=1, now_ms=NOW)
            else:
                assert log.reader.read(0, 100).records
                log.append_as_leader(make_batch(1), leader_epoch=1, now_ms=NOW)
        assert {create(manager, partition).log_dir.path for partition in range(10, 16)} == {
            harness.dirs[0],
            harness.dirs[2],
        }
        assert {log.log_dir.path for log in manager.hosted.online()} == {harness.dirs[0], harness.dirs[2]}

    def test_a_clean_stop_writes_no_marker_to_a_failed_dir(
        self, manager, logs, harness, make_batch, faulty_disk
    ) -> None:
        faulty_disk.errors["writev"] = errno.EIO
        failing = logs[0].log_dir.path
        with pytest.raises(LogDirFailure):
            logs[0].append_as_leader(make_batch(1), leader_epoch=1, now_ms=NOW)
        faulty_disk.errors.clear()
        manager.close(broker_epoch=9)
        harness.running.clear()
        markers = {path: Path(path, ".kafka_cleanshutdown").exists() for path in harness.dirs}
        assert markers == {path: path != failing for path in harness.dirs}
        again = harness.start()
        assert again.directories.clean_shutdown_epoch() is None
        assert {log.log_end_offset for log in again.hosted.current.values()} == {20}

    def test_a_dir_that_cannot_be_opened_does_not_stop_the_start(self, manager, logs, harness) -> None:
        harness.crash(manager)
        harness.dirs = (harness.dirs[0], "/proc/no-such-dir", harness.dirs[2])
        again = harness.start()
        assert list(again.directories.offline()) == ["/proc/no-such-dir"]
        assert len(again.hosted.current) == 4
        assert len(again.directories.ids()) == 2

    def test_a_broker_without_a_usable_log_dir_does_not_start(self, harness) -> None:
        harness.dirs = ("/proc/no-such-dir",)
        with pytest.raises(LogDirError, match="no log directory can be used: /proc/no-such-dir"):
            harness.start()

    def test_a_log_that_cannot_be_read_at_the_start_takes_its_dir_offline(
        self, manager, logs, harness, faulty_disk
    ) -> None:
        harness.crash(manager)
        faulty_disk.errors["pread"] = errno.EIO
        faulty_disk.only_below = logs[0].directory
        again = harness.start()
        assert list(again.directories.offline()) == [logs[0].log_dir.path]
        assert TopicPartition("orders", 0) not in again.hosted.current
        assert len(again.hosted.current) >= 4


class TestFullDisk:
    def test_creating_a_log_on_a_full_disk_is_refused_until_there_is_room(self, manager, faulty_disk) -> None:
        faulty_disk.room = 5
        with pytest.raises(DiskFull):
            create(manager, 0)
        assert manager.get(TopicPartition("orders", 0)) is None
        faulty_disk.room = None
        assert create(manager, 0).log_end_offset == 0
        assert not manager.directories.offline()

    def test_a_restart_on_a_full_disk_serves_what_is_there(self, manager, harness, make_batch, faulty_disk) -> None:
        log = create(manager, 0)
        fill(log, make_batch, 20)
        path = Path(log.directory)
        harness.crash(manager)
        for index in path.glob("*index"):
            index.unlink()
        faulty_disk.room = 0
        again = harness.start()
        assert not again.directories.offline()
        log = again.get(TopicPartition("orders", 0))
        for offset in range(40):
            assert log.reader.read(offset, 1).records
        with pytest.raises(DiskFull):
            log.append_as_leader(make_batch(1), leader_epoch=1, now_ms=NOW)
        faulty_disk.room = None
        assert log.append_as_leader(make_batch(1), leader_epoch=1, now_ms=NOW).base_offset == 40
        log.check_invariants()

    def test_a_stop_on_a_full_disk_leaves_no_clean_shutdown_marker(
        self, manager, harness, make_batch, faulty_disk
    ) -> None:
        fill(create(manager, 0), make_batch)
        faulty_disk.room = 0
        manager.close(broker_epoch=1)
        harness.running.clear()
        faulty_disk.room = None
        again = harness.start()
        assert again.directories.clean_shutdown_epoch() is None
        assert again.get(TopicPartition("orders", 0)).log_end_offset == 20


class TestBackground:
    def test_only_logs_with_a_sealed_segment_are_due_for_a_flush(self, manager, make_batch) -> None:
        rolled, small = create(manager, 0), create(manager, 1)
        fill(rolled, make_batch, 20)
        fill(small, make_batch, 1)
        assert [log for log in manager.hosted.all() if log.flusher.is_due(NOW)] == [rolled]
        job = rolled.flusher.plan()
        job.run()
        manager.complete_flush(job)
        assert (rolled.flusher.recovery_point, small.flusher.recovery_point) == (40, 0)

    def test_retention_deletes_up_to_each_logs_own_high_watermark(self, manager, make_batch) -> None:
        for partition in range(3):
            fill(create(manager, partition), make_batch, 20)
        deletions = manager.apply_retention(lambda tp: 40 if tp.partition else 0, now_ms=10**12)
        assert [name.partition for name in deletions] == [1, 2]
        for deletion in deletions.values():
            manager.deletion.remove_files(deletion)
            assert not any(Path(path).exists() for path in deletion.paths)
        starts = [manager.get(TopicPartition("orders", p)).log_start_offset for p in range(3)]
        assert starts == [0, 40, 40]
