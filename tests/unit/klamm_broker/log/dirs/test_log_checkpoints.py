"""Tests the checkpoints of the log dirs. An older checkpoint must never replace a newer one."""

from __future__ import annotations

from pathlib import Path

from klamm.model import TopicPartition
from tests.support.log_managers import NOW, create, fill
from tests.support.log_steps import delete_log


class TestCleanerOffsets:
    """Tests `cleaner-offset-checkpoint`: the compacted offset of each log by log dir, in Kafka's format."""

    def path(self, log) -> Path:
        return Path(log.log_dir.path, "cleaner-offset-checkpoint")

    def test_cleaner_offsets_survive_a_restart(self, manager, harness, make_batch) -> None:
        log = create(manager, 0)
        fill(log, make_batch)
        log.flusher.flush()
        assert not self.path(log).exists()
        log.compaction.cleaned_to_offset = 7
        manager.checkpoints.plan_of(log.log_dir).run()
        assert self.path(log).read_text() == "0\n1\norders 0 7\n"
        harness.crash(manager)
        assert harness.start().hosted.current[log.topic_partition].compaction.cleaned_to_offset == 7

    def test_unchanged_cleaner_offsets_are_not_written_again(self, manager, make_batch) -> None:
        log = create(manager, 0)
        fill(log, make_batch)
        log.compaction.cleaned_to_offset = 7
        manager.checkpoints.plan_of(log.log_dir).run()
        self.path(log).unlink()
        manager.checkpoints.plan_of(log.log_dir).run()
        assert not self.path(log).exists()

    def test_cleaner_offsets_never_pass_the_recovery_point(self, manager, harness, make_batch) -> None:
        log = create(manager, 0)
        fill(log, make_batch)
        log.compaction.cleaned_to_offset = 7
        manager.checkpoints.plan_of(log.log_dir).run()
        assert log.flusher.recovery_point == 0
        harness.crash(manager)
        assert harness.start().hosted.current[log.topic_partition].compaction.cleaned_to_offset == 0

    def test_cleaner_offsets_go_back_with_a_truncation(self, manager, harness, make_batch) -> None:
        log = create(manager, 0)
        fill(log, make_batch)
        log.flusher.flush()
        log.compaction.cleaned_to_offset = 7
        manager.checkpoints.plan_of(log.log_dir).run()
        log.truncate_to(4, now_ms=NOW)
        manager.checkpoints.store_recovery_points([log.topic_partition])
        assert self.path(log).read_text() == "0\n1\norders 0 4\n"

    def test_a_new_log_does_not_inherit_the_cleaner_offset_of_a_deleted_one(self, manager, make_batch) -> None:
        log = create(manager, 0)
        fill(log, make_batch)
        log.flusher.flush()
        log.compaction.cleaned_to_offset = 7
        manager.checkpoints.plan_of(log.log_dir).run()
        delete_log(manager, log.topic_partition, now_ms=NOW)
        assert self.path(log).read_text() == "0\n0\n"
        assert create(manager, 0).compaction.cleaned_to_offset == 0


def test_a_truncation_below_the_recovery_point_is_checkpointed(manager, make_batch) -> None:
    log = create(manager, 0)
    fill(log, make_batch, 20)
    log.flusher.flush()
    older = manager.checkpoints.plan({})
    log.truncate_to(10, now_ms=NOW)
    manager.checkpoints.store_recovery_points([TopicPartition("orders", 0)])
    path = Path(log.log_dir.path, "recovery-point-offset-checkpoint")
    assert path.read_text() == "0\n1\norders 0 10\n"
    for job in older:
        job.run()  # planned before the truncation and run after it, which must not restore 40
    assert path.read_text() == "0\n1\norders 0 10\n"


def test_a_moved_high_watermark_is_written_and_an_older_write_does_not_replace_it(manager, make_batch) -> None:
    log = create(manager, 0)
    fill(log, make_batch)
    name = TopicPartition("orders", 0)
    older = manager.checkpoints.plan({name: 5})
    (job,) = manager.checkpoints.plan_high_watermarks({name: 7})
    job.run()
    path = Path(log.log_dir.path, "replication-offset-checkpoint")
    assert path.read_text() == "0\n1\norders 0 7\n"
    assert manager.checkpoints.plan_high_watermarks({name: 7}) == []
    for late in older:
        late.run()  # planned before and run after, which must not restore 5
    assert path.read_text() == "0\n1\norders 0 7\n"


def test_checkpointed_high_watermarks_are_bounded_by_log_start_and_log_end(manager, harness, make_batch) -> None:
    marks = {}
    for partition, mark in enumerate((12, 500, 3)):
        fill(create(manager, partition), make_batch)
        marks[TopicPartition("orders", partition)] = mark
    for marked in (marks, {TopicPartition("orders", 0): 13}):
        for job in manager.checkpoints.plan(marked):
            job.run()
    manager.get(TopicPartition("orders", 2)).advance_log_start(5, high_watermark=20)
    manager.close(broker_epoch=1)
    harness.running.clear()
    again = harness.start()
    found = [again.checkpoints.high_watermark(again.get(tp)) for tp in marks]
    assert found == [13, 20, 5]
