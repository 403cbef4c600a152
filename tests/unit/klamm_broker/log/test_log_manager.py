"""Several log dirs: where logs go, what a failing dir takes with it, and how a stop and a crash are told apart."""

from __future__ import annotations

import errno
import random
import shutil
import uuid
from pathlib import Path

import pytest
from log_steps import create_log, delete_log

from klamm.errors import ErrorCode
from klamm.model import TopicId, TopicPartition
from klamm_broker.log.directory_names import parse_directory_name
from klamm_broker.log.disk import Disk
from klamm_broker.log.log_config import LogConfig
from klamm_broker.log.log_manager import LogManager, LogManagerConfig
from klamm_broker.log.partition_metadata import encode_uuid
from klamm_broker.log.storage_failure import DiskFull, LogDirError, LogDirFailure

NOW = 1_000
CONFIG = LogConfig(segment_bytes=1024, index_interval_bytes=100, file_delete_delay_ms=60)
TOPIC_ID = TopicId(uuid.UUID(int=77))


class ManagerHarness:
    """Starts log managers over the same dirs; `crash` drops one without a word to the disk."""

    def __init__(self, root: Path, disk: Disk) -> None:
        self.dirs = tuple(str(root / name) for name in ("a", "b", "c"))
        self.disk = disk
        self.rng = random.Random(5)
        self.running: list[LogManager] = []

    def start(
        self, *, load: bool = True, cluster_id: str = "one", lost: frozenset[uuid.UUID] = frozenset()
    ) -> LogManager:
        config = LogManagerConfig(
            log_dirs=self.dirs, cluster_id=cluster_id, node_id=1, open_segments_max=4, lost_directory_ids=lost
        )
        manager = LogManager(config, self.disk, self.rng)
        self.running.append(manager)
        if load:
            self.deletions = manager.load(lambda topic: CONFIG, now_ms=NOW)
        return manager

    def crash(self, manager: LogManager) -> None:
        for log in manager.logs.values():
            log.abandon()
        manager._directories.unlock()
        self.running.remove(manager)


@pytest.fixture
def harness(tmp_path, faulty_disk):
    harness = ManagerHarness(tmp_path, faulty_disk)
    yield harness
    for manager in list(harness.running):
        harness.crash(manager)


@pytest.fixture
def manager(harness):
    return harness.start()


def create(manager: LogManager, partition: int, topic: str = "orders"):
    return create_log(manager, TopicPartition(topic, partition), TOPIC_ID, CONFIG, now_ms=NOW)


def fill(log, make_batch, count: int = 10) -> None:
    for _ in range(count):
        log.append_as_leader(make_batch(2), leader_epoch=1, now_ms=NOW)


class TestPlacement:
    def test_new_logs_go_where_fewest_are(self, manager, harness) -> None:
        used = [create(manager, partition).log_dir.path for partition in range(6)]
        assert [used.count(path) for path in harness.dirs] == [2, 2, 2]

    def test_a_log_is_found_once_it_is_complete(self, manager) -> None:
        log = create(manager, 0)
        assert manager.get(TopicPartition("orders", 0)) is log
        assert manager.get(TopicPartition("orders", 1)) is None

    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            ("orders-3", ("orders", 3)),
            ("a-b.c_d-0", ("a-b.c_d", 0)),
            ("orders", None),
            ("orders-", None),
            ("-3", None),
            ("orders-3.abc-delete", None),
            ("lost+found", None),
        ],
    )
    def test_directory_names(self, name, expected) -> None:
        assert parse_directory_name(name) == expected

    def test_directories_of_others_are_left_alone(self, manager, harness) -> None:
        other = Path(harness.dirs[0], "lost+found")
        other.mkdir()
        harness.crash(manager)
        harness.start()
        assert other.exists()


class TestRestart:
    def test_after_a_clean_stop(self, manager, harness, make_batch) -> None:
        for partition in range(4):
            fill(create(manager, partition), make_batch)
        manager.get(TopicPartition("orders", 2)).advance_log_start(7, high_watermark=20)
        manager.close(broker_epoch=33)
        harness.running.clear()
        again = harness.start()
        assert again.clean_shutdown_epoch() == 33
        assert sorted(again.logs) == [("orders", partition) for partition in range(4)]
        for partition in range(4):
            log = again.get(TopicPartition("orders", partition))
            assert (log.log_end_offset, log.recovery_point, log.topic_id) == (20, 20, TOPIC_ID)
            assert log.log_start_offset == (7 if partition == 2 else 0)
            log.check_invariants()

    def test_after_a_crash(self, manager, harness, make_batch) -> None:
        log = create(manager, 0)
        fill(log, make_batch, 20)
        log.flush()
        for job in manager.plan_checkpoints({}):
            job.run()
        fill(log, make_batch, 20)
        path = Path(log.directory, f"{log.segment_base_offsets[-1]:020d}.log")
        harness.crash(manager)
        path.write_bytes(path.read_bytes()[:-1])
        again = harness.start()
        assert again.clean_shutdown_epoch() is None
        log = again.get(TopicPartition("orders", 0))
        assert (log.log_end_offset, log.recovery_point) == (78, 40)
        log.check_invariants()

    def test_the_marker_counts_for_one_start(self, manager, harness) -> None:
        manager.close(broker_epoch=1)
        harness.running.clear()
        harness.crash(harness.start())
        assert harness.start().clean_shutdown_epoch() is None

    @pytest.mark.parametrize("name", ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint"])
    def test_a_damaged_checkpoint_does_not_cost_the_dir(self, manager, harness, make_batch, name) -> None:
        log = create(manager, 0)
        fill(log, make_batch)
        manager.close(broker_epoch=1)
        harness.running.clear()
        Path(log.log_dir.path, name).write_text("rubbish")
        again = harness.start()
        assert again.get(TopicPartition("orders", 0)).log_end_offset == 20
        assert not again.offline_log_dirs()

    def test_a_partition_in_two_dirs_stops_the_start(self, manager, harness) -> None:
        log = create(manager, 0)
        harness.crash(manager)
        other = next(path for path in harness.dirs if path != log.log_dir.path)
        Path(other, "orders-0").mkdir()
        broken = harness.start(load=False)
        with pytest.raises(LogDirError, match="orders-0 is in two log dirs"):
            broken.load(lambda topic: CONFIG, now_ms=NOW)

    def test_dirs_are_locked_while_in_use(self, manager, harness) -> None:
        with pytest.raises(LogDirError, match="is in use"):
            harness.start()
        manager.close(broker_epoch=1)
        harness.running.clear()
        harness.start()

    def test_a_dir_of_another_cluster_stops_the_start_and_frees_the_locks(self, manager, harness) -> None:
        harness.crash(manager)
        with pytest.raises(LogDirError, match="another cluster"):
            harness.start(cluster_id="two")
        harness.start()


class TestCleanerOffsets:
    """`cleaner-offset-checkpoint`: how far compaction has been, per log dir, in Kafka's format."""

    def path(self, log) -> Path:
        return Path(log.log_dir.path, "cleaner-offset-checkpoint")

    def test_survive_a_restart(self, manager, harness, make_batch) -> None:
        log = create(manager, 0)
        fill(log, make_batch)
        log.flush()
        assert not self.path(log).exists()
        log.cleaned_to_offset = 7
        manager.plan_checkpoint_of(log).run()
        assert self.path(log).read_text() == "0\n1\norders 0 7\n"
        harness.crash(manager)
        assert harness.start().logs[log.topic_partition].cleaned_to_offset == 7

    def test_are_not_written_again_and_again(self, manager, make_batch) -> None:
        log = create(manager, 0)
        fill(log, make_batch)
        log.cleaned_to_offset = 7
        manager.plan_checkpoint_of(log).run()
        self.path(log).unlink()
        manager.plan_checkpoint_of(log).run()
        assert not self.path(log).exists()

    def test_are_never_beyond_what_is_on_disk(self, manager, harness, make_batch) -> None:
        log = create(manager, 0)
        fill(log, make_batch)
        log.cleaned_to_offset = 7
        manager.plan_checkpoint_of(log).run()
        assert log.recovery_point == 0
        harness.crash(manager)
        assert harness.start().logs[log.topic_partition].cleaned_to_offset == 0

    def test_go_back_with_a_truncation(self, manager, harness, make_batch) -> None:
        log = create(manager, 0)
        fill(log, make_batch)
        log.flush()
        log.cleaned_to_offset = 7
        manager.plan_checkpoint_of(log).run()
        log.truncate_to(4, now_ms=NOW)
        manager.store_recovery_points([log.topic_partition])
        assert self.path(log).read_text() == "0\n1\norders 0 4\n"

    def test_of_a_deleted_log_are_not_the_next_ones(self, manager, make_batch) -> None:
        log = create(manager, 0)
        fill(log, make_batch)
        log.flush()
        log.cleaned_to_offset = 7
        manager.plan_checkpoint_of(log).run()
        delete_log(manager, log.topic_partition, now_ms=NOW)
        assert self.path(log).read_text() == "0\n0\n"
        assert create(manager, 0).cleaned_to_offset == 0


class TestDelete:
    def test_the_directory_is_renamed_now_and_removed_when_due(self, manager, harness, make_batch) -> None:
        log = create(manager, 0)
        fill(log, make_batch)
        deletion = delete_log(manager, TopicPartition("orders", 0), now_ms=NOW)
        assert manager.get(TopicPartition("orders", 0)) is None
        assert not Path(log.directory).exists()
        (path,) = deletion.paths
        assert Path(path).name.startswith("orders-0.")
        assert path.endswith("-delete")
        assert deletion.due_ms == NOW + 60
        manager.remove_files(deletion)
        assert not Path(path).exists()
        manager.remove_files(deletion)

    def test_the_same_name_can_be_created_again_at_once(self, manager, make_batch) -> None:
        fill(create(manager, 0), make_batch)
        delete_log(manager, TopicPartition("orders", 0), now_ms=NOW)
        assert create(manager, 0).log_end_offset == 0

    def test_the_next_log_of_that_name_inherits_no_offsets(self, manager, harness, make_batch) -> None:
        log = create(manager, 0)
        fill(log, make_batch, 40)
        log.flush()
        for job in manager.plan_checkpoints({TopicPartition("orders", 0): 80}):
            job.run()
        delete_log(manager, TopicPartition("orders", 0), now_ms=NOW)
        fill(create(manager, 0), make_batch, 20)
        harness.crash(manager)
        again = harness.start()
        log = again.get(TopicPartition("orders", 0))
        assert (log.log_end_offset, log.recovery_point) == (40, 0)
        assert again.checkpointed_high_watermark(log) == 0

    def test_a_crash_before_the_removal_leaves_it_for_the_next_start(self, manager, harness, make_batch) -> None:
        fill(create(manager, 0), make_batch)
        deletion = delete_log(manager, TopicPartition("orders", 0), now_ms=NOW)
        harness.crash(manager)
        again = harness.start()
        assert not again.logs
        assert [found.paths for found in harness.deletions] == [deletion.paths]

    def test_a_long_name_fits_the_file_system(self, manager) -> None:
        topic = "t" * 249
        create(manager, 0, topic)
        deletion = delete_log(manager, TopicPartition(topic, 0), now_ms=NOW)
        assert len(Path(deletion.paths[0]).name) == 255

    def test_a_flush_planned_before_does_no_harm(self, manager, make_batch) -> None:
        log = create(manager, 0)
        fill(log, make_batch)
        job = log.plan_flush()
        deletion = delete_log(manager, TopicPartition("orders", 0), now_ms=NOW)
        manager.remove_files(deletion)
        job.run()
        manager.complete_flush(job)
        assert not manager.offline_log_dirs()


class TestFailingDir:
    @pytest.fixture
    def logs(self, manager, make_batch):
        logs = [create(manager, partition) for partition in range(6)]
        for log in logs:
            fill(log, make_batch)
        return logs

    @pytest.mark.parametrize("operation", ["writev", "pread", "fdatasync", "open", "replace"])
    @pytest.mark.parametrize("number", [errno.EIO, errno.EROFS])
    def test_it_goes_offline_and_the_others_serve_on(
        self, manager, logs, harness, make_batch, faulty_disk, operation, number
    ) -> None:
        failing = harness.dirs[1]
        faulty_disk.errors[operation] = number
        faulty_disk.only_below = failing
        failures: list[LogDirFailure] = []
        for log in logs:
            try:
                log.append_as_leader(make_batch(2), leader_epoch=1, now_ms=NOW)
                log.read(0, 100)
                log.flush()
                log.truncate_to(20, now_ms=NOW)
            except LogDirFailure as error:
                failures.append(error)
        for job in manager.plan_checkpoints({}):
            try:
                job.run()
            except LogDirFailure as error:
                failures.append(error)
        faulty_disk.errors.clear()
        assert {(error.log_dir, error.code) for error in failures} == {(failing, ErrorCode.KAFKA_STORAGE_ERROR)}
        assert list(manager.offline_log_dirs()) == [failing]
        for log in logs:
            if log.log_dir.path == failing:
                with pytest.raises(LogDirFailure):
                    log.read(0, 100)
                with pytest.raises(LogDirFailure):
                    log.append_as_leader(make_batch(1), leader_epoch=1, now_ms=NOW)
            else:
                assert log.read(0, 100).records
                log.append_as_leader(make_batch(1), leader_epoch=1, now_ms=NOW)
        assert {create(manager, partition).log_dir.path for partition in range(10, 16)} == {
            harness.dirs[0],
            harness.dirs[2],
        }
        for log in logs:
            log.config = LogConfig(flush_ms=0)
        jobs = manager.plan_flushes(now_ms=NOW)
        assert {job.log_dir.path for job in jobs} == {harness.dirs[0], harness.dirs[2]}
        for job in jobs:
            job.discard()

    def test_the_stop_after_leaves_no_marker_there(self, manager, logs, harness, make_batch, faulty_disk) -> None:
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
        assert again.clean_shutdown_epoch() is None
        assert {log.log_end_offset for log in again.logs.values()} == {20}

    def test_a_dir_that_cannot_be_opened_does_not_stop_the_start(self, manager, logs, harness) -> None:
        harness.crash(manager)
        harness.dirs = (harness.dirs[0], "/proc/no-such-dir", harness.dirs[2])
        again = harness.start()
        assert list(again.offline_log_dirs()) == ["/proc/no-such-dir"]
        assert len(again.logs) == 4
        assert len(again.directory_ids()) == 2

    def test_without_any_dir_there_is_no_start(self, harness) -> None:
        harness.dirs = ("/proc/no-such-dir",)
        with pytest.raises(LogDirError, match="no log dir can be used: /proc/no-such-dir"):
            harness.start()

    def test_a_log_that_cannot_be_read_at_the_start_costs_its_dir(self, manager, logs, harness, faulty_disk) -> None:
        harness.crash(manager)
        faulty_disk.errors["pread"] = errno.EIO
        faulty_disk.only_below = logs[0].directory
        again = harness.start()
        assert list(again.offline_log_dirs()) == [logs[0].log_dir.path]
        assert TopicPartition("orders", 0) not in again.logs
        assert len(again.logs) >= 4


class TestMissingDir:
    """A dir that this broker had is not among those it has now."""

    @pytest.fixture
    def ids(self, manager, harness):
        ids = manager.directory_ids()
        harness.crash(manager)
        return ids

    def unmount(self, path: str) -> None:
        Path(path).rename(f"{path}.aside")
        Path(path).mkdir()

    def mount(self, path: str) -> None:
        shutil.rmtree(path)
        Path(f"{path}.aside").rename(path)

    @pytest.mark.parametrize("number", [0, 1, 2])
    def test_an_empty_dir_in_its_place_stays_empty_until_it_is_back(self, harness, ids, number) -> None:
        absent = harness.dirs[number]
        self.unmount(absent)
        for _ in range(2):
            again = harness.start()
            assert list(again.offline_log_dirs()) == [absent]
            assert encode_uuid(ids[absent]) in again.offline_log_dirs()[absent]
            assert set(again.directory_ids()) == set(harness.dirs) - {absent}
            assert not Path(absent, "meta.properties").exists()
            harness.crash(again)
        self.mount(absent)
        again = harness.start()
        assert again.directory_ids() == ids
        assert not again.unreadable_log_dirs()

    def test_a_new_dir_waits_too_for_it_may_be_the_place(self, harness, ids, tmp_path) -> None:
        harness.dirs = (*harness.dirs[:2], str(tmp_path / "d"))
        assert list(harness.start().offline_log_dirs()) == [harness.dirs[2]]

    def test_it_may_hold_what_is_nowhere_else(self, harness, ids) -> None:
        removed = harness.dirs[2]
        harness.dirs = harness.dirs[:2]
        again = harness.start()
        assert not again.offline_log_dirs()
        assert again.unreadable_log_dirs() == [f"the log dir with directory.id {encode_uuid(ids[removed])}"]

    def test_one_that_cannot_be_opened_holds_a_new_one_up(self, harness, ids, tmp_path) -> None:
        harness.dirs = (harness.dirs[0], harness.dirs[1], "/proc/no-such-dir", str(tmp_path / "d"))
        assert list(harness.start().offline_log_dirs()) == list(harness.dirs[2:])

    def test_said_to_be_lost_it_is_replaced_for_good(self, harness, ids) -> None:
        lost = harness.dirs[1]
        shutil.rmtree(lost)
        again = harness.start(lost=frozenset({ids[lost]}))
        replaced = again.directory_ids()
        assert len(set(replaced.values()) | set(ids.values())) == 4
        harness.crash(again)
        again = harness.start()
        assert again.directory_ids() == replaced
        assert not again.unreadable_log_dirs()

    def test_said_to_be_lost_and_found_it_is_used(self, harness, ids) -> None:
        lost = frozenset({ids[harness.dirs[1]]})
        harness.crash(harness.start(lost=lost))
        self.unmount(harness.dirs[1])
        assert list(harness.start().offline_log_dirs()) == [harness.dirs[1]]

    def test_saying_that_another_is_lost_does_not_do(self, harness, ids) -> None:
        self.unmount(harness.dirs[1])
        assert list(harness.start(lost=frozenset({uuid.UUID(int=9)})).offline_log_dirs()) == [harness.dirs[1]]

    def test_a_dir_added_is_formatted_and_missed_from_then_on(self, harness, ids, tmp_path) -> None:
        harness.dirs = (str(tmp_path / "d"), *harness.dirs)
        again = harness.start()
        assert again.directory_ids().items() > ids.items()
        harness.crash(again)
        self.unmount(harness.dirs[0])
        assert list(harness.start().offline_log_dirs()) == [harness.dirs[0]]

    def test_a_dir_that_could_not_be_formatted_is_not_missed(self, harness, ids, tmp_path, faulty_disk) -> None:
        harness.dirs = (*harness.dirs, str(tmp_path / "d"))
        faulty_disk.errors["replace"] = errno.EIO
        faulty_disk.only_below = harness.dirs[3]
        failed = harness.start()
        assert list(failed.offline_log_dirs()) == [harness.dirs[3]]
        faulty_disk.errors.clear()
        harness.crash(failed)
        assert len(harness.start().directory_ids()) == 4

    def test_a_full_disk_does_not_keep_a_dir_from_being_added(self, harness, ids, tmp_path, faulty_disk) -> None:
        harness.dirs = (*harness.dirs, str(tmp_path / "d"))
        faulty_disk.errors["pwrite"] = errno.ENOSPC
        faulty_disk.only_below = harness.dirs[0]
        again = harness.start()
        assert len(again.directory_ids()) == 4
        faulty_disk.errors.clear()
        harness.crash(again)
        self.unmount(harness.dirs[3])
        assert list(harness.start().offline_log_dirs()) == [harness.dirs[3]]


class TestFullDisk:
    def test_creation_is_refused_and_works_once_there_is_room(self, manager, faulty_disk) -> None:
        faulty_disk.room = 5
        with pytest.raises(DiskFull):
            create(manager, 0)
        assert manager.get(TopicPartition("orders", 0)) is None
        faulty_disk.room = None
        assert create(manager, 0).log_end_offset == 0
        assert not manager.offline_log_dirs()

    def test_a_restart_on_a_full_disk_serves_what_is_there(self, manager, harness, make_batch, faulty_disk) -> None:
        log = create(manager, 0)
        fill(log, make_batch, 20)
        path = Path(log.directory)
        harness.crash(manager)
        for index in path.glob("*index"):
            index.unlink()
        faulty_disk.room = 0
        again = harness.start()
        assert not again.offline_log_dirs()
        log = again.get(TopicPartition("orders", 0))
        for offset in range(40):
            assert log.read(offset, 1).records
        with pytest.raises(DiskFull):
            log.append_as_leader(make_batch(1), leader_epoch=1, now_ms=NOW)
        faulty_disk.room = None
        assert log.append_as_leader(make_batch(1), leader_epoch=1, now_ms=NOW).base_offset == 40
        log.check_invariants()

    def test_a_stop_on_a_full_disk_is_a_crash_for_the_next_start(
        self, manager, harness, make_batch, faulty_disk
    ) -> None:
        fill(create(manager, 0), make_batch)
        faulty_disk.room = 0
        manager.close(broker_epoch=1)
        harness.running.clear()
        faulty_disk.room = None
        again = harness.start()
        assert again.clean_shutdown_epoch() is None
        assert again.get(TopicPartition("orders", 0)).log_end_offset == 20


class TestBackground:
    def test_flushes_are_planned_for_logs_that_are_due(self, manager, make_batch) -> None:
        rolled, small = create(manager, 0), create(manager, 1)
        fill(rolled, make_batch, 20)
        fill(small, make_batch, 1)
        jobs = manager.plan_flushes(now_ms=NOW)
        assert [job.topic_partition for job in jobs] == [("orders", 0)]
        for job in jobs:
            job.run()
            manager.complete_flush(job)
        assert (rolled.recovery_point, small.recovery_point) == (40, 0)

    def test_retention_over_all_logs(self, manager, make_batch) -> None:
        for partition in range(3):
            fill(create(manager, partition), make_batch, 20)
        deletions = manager.apply_retention(lambda tp: 40 if tp.partition else 0, now_ms=10**12)
        assert len(deletions) == 2
        for deletion in deletions:
            manager.remove_files(deletion)
            assert not any(Path(path).exists() for path in deletion.paths)
        starts = [manager.get(TopicPartition("orders", p)).log_start_offset for p in range(3)]
        assert starts == [0, 40, 40]

    def test_a_truncation_below_the_recovery_point_is_checkpointed(self, manager, make_batch) -> None:
        log = create(manager, 0)
        fill(log, make_batch, 20)
        log.flush()
        older = manager.plan_checkpoints({})
        log.truncate_to(10, now_ms=NOW)
        manager.store_recovery_points([TopicPartition("orders", 0)])
        path = Path(log.log_dir.path, "recovery-point-offset-checkpoint")
        assert path.read_text() == "0\n1\norders 0 10\n"
        for job in older:
            job.run()  # planned before the truncation, run after it: must not bring 40 back
        assert path.read_text() == "0\n1\norders 0 10\n"

    def test_high_watermarks_are_written_by_themselves_when_one_moved(self, manager, make_batch) -> None:
        log = create(manager, 0)
        fill(log, make_batch)
        name = TopicPartition("orders", 0)
        older = manager.plan_checkpoints({name: 5})
        (job,) = manager.plan_high_watermark_checkpoints({name: 7})
        job.run()
        path = Path(log.log_dir.path, "replication-offset-checkpoint")
        assert path.read_text() == "0\n1\norders 0 7\n"
        assert manager.plan_high_watermark_checkpoints({name: 7}) == []
        for late in older:
            late.run()  # planned before, run after: must not bring 5 back
        assert path.read_text() == "0\n1\norders 0 7\n"

    def test_high_watermarks_survive_within_what_the_log_holds(self, manager, harness, make_batch) -> None:
        marks = {}
        for partition, mark in enumerate((12, 500, 3)):
            fill(create(manager, partition), make_batch)
            marks[TopicPartition("orders", partition)] = mark
        for marked in (marks, {TopicPartition("orders", 0): 13}):
            for job in manager.plan_checkpoints(marked):
                job.run()
        manager.get(TopicPartition("orders", 2)).advance_log_start(5, high_watermark=20)
        manager.close(broker_epoch=1)
        harness.running.clear()
        again = harness.start()
        found = [again.checkpointed_high_watermark(again.get(tp)) for tp in marks]
        assert found == [13, 20, 5]

    def test_describe_log_dirs(self, manager, harness, make_batch, faulty_disk) -> None:
        log = create(manager, 0)
        fill(log, make_batch)
        rows = {row.path: row for row in manager.describe_log_dirs()}
        row = rows[log.log_dir.path]
        (replica,) = row.replicas
        assert (replica.log, replica.is_future, replica.offset_lag) == (log, False, 0)
        assert row.total_bytes >= row.usable_bytes > 0
        assert row.error_code is ErrorCode.NONE
        assert row.directory_id == manager.directory_ids()[log.log_dir.path]
        faulty_disk.errors["writev"] = errno.EIO
        with pytest.raises(LogDirFailure):
            log.append_as_leader(make_batch(1), leader_epoch=1, now_ms=NOW)
        rows = {row.path: row for row in manager.describe_log_dirs()}
        assert rows[log.log_dir.path].error_code is ErrorCode.KAFKA_STORAGE_ERROR
        assert rows[log.log_dir.path].usable_bytes == -1
