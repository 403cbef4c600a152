"""Tests many logs created and deleted at once: the state after a crash or full disk at any moment, and the cost."""

from __future__ import annotations

import errno
import itertools
import os
import random
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from klamm.errors import BrokerError, ErrorCode
from klamm.model import TopicId, TopicPartition
from klamm_broker.log.dirs.log_creation import NewLog
from klamm_broker.log.dirs.log_manager import LogManager, LogManagerConfig
from klamm_broker.log.files.storage_failure import DiskFull
from klamm_broker.log.log_config import LogConfig
from klamm_server.runtime.disk import Disk
from tests.support.log_steps import create_log, delete_log
from tests.support.mortal_disk import Killed, MortalDisk

CONFIG = LogConfig()
TOPIC_ID = TopicId(uuid.UUID(int=77))
NAMES = [TopicPartition("orders", number) for number in range(3)]


class Starts:
    """Log managers over one directory, one after the other. `crash` ends one without any more writes."""

    def __init__(self, root: Path, disk: Disk) -> None:
        self.root = root
        self.disk = disk
        self.manager = self._start()

    def _start(self) -> LogManager:
        config = LogManagerConfig(log_dirs=(str(self.root),), node_id=1)
        manager = LogManager(config, self.disk, random.Random(0))
        self.deletions = manager.load("c", lambda topic: CONFIG, now_ms=0)
        return manager

    def crash(self) -> None:
        for log in self.manager.hosted.current.values():
            log.abandon()
        self.manager.directories.unlock()

    def restart(self) -> LogManager:
        self.crash()
        self.manager = self._start()
        return self.manager


@pytest.fixture
def disk() -> MortalDisk:
    return MortalDisk()


@pytest.fixture
def starts(tmp_path: Path, disk: MortalDisk) -> Iterator[Starts]:
    starts = Starts(tmp_path, disk)
    yield starts
    starts.crash()


def new_logs() -> list[NewLog]:
    return [NewLog(topic_partition=name, topic_id=TOPIC_ID, config=CONFIG) for name in NAMES]


def test_a_crash_at_any_moment_of_a_log_creation_leaves_logs_that_open(
    starts: Starts, disk: MortalDisk, make_batch
) -> None:
    for operations in itertools.count():
        (job,), _ = starts.manager.creation.plan(new_logs(), now_ms=0)
        disk.operations_left = operations
        try:
            outcomes = job.run()
        except Killed:
            disk.operations_left = None
        else:
            break
        manager = starts.restart()
        assert not manager.directories.offline()
        for name, log in manager.hosted.current.items():
            assert name in NAMES
            assert log.topic_id in (TOPIC_ID, None)
            assert log.log_end_offset == 0
        for name in list(manager.hosted.current):
            manager.deletion.remove_files(delete_log(manager, name, now_ms=0))
    disk.operations_left = None
    assert operations > 10 * len(NAMES)
    assert not starts.manager.creation.complete(job, outcomes)
    for name in NAMES:
        starts.manager.hosted.current[name].append_as_leader(make_batch(2), leader_epoch=0, now_ms=0)
    found = starts.restart().hosted.current
    assert {name: (log.topic_id, log.log_end_offset) for name, log in found.items()} == dict.fromkeys(
        NAMES, (TOPIC_ID, 2)
    )


def test_a_crash_at_any_moment_of_a_log_deletion_keeps_a_log_whole_or_removes_it(
    starts: Starts, disk: MortalDisk, make_batch
) -> None:
    for operations in itertools.count():
        for name in set(NAMES) - starts.manager.hosted.current.keys():
            log = create_log(starts.manager, name, TOPIC_ID, CONFIG)
            log.append_as_leader(make_batch(2), leader_epoch=0, now_ms=0)
        (job,) = starts.manager.deletion.plan(NAMES, now_ms=0)
        disk.operations_left = operations
        try:
            job.run()
        except Killed:
            disk.operations_left = None
        else:
            break
        manager = starts.restart()
        assert all(log.log_end_offset == 2 for log in manager.hosted.current.values())
        assert len(manager.hosted.current) + len(starts.deletions) == len(NAMES)
        for deletion in starts.deletions:
            manager.deletion.remove_files(deletion)
    disk.operations_left = None
    assert operations > len(NAMES)
    assert len(starts.manager.deletion.complete(job)) == len(NAMES)
    assert not starts.restart().hosted.current


def test_the_log_dir_is_synced_once_for_many_creations_or_deletions(starts: Starts, disk: MortalDisk) -> None:
    root = str(starts.root)
    disk.directory_syncs.clear()
    (job,), _ = starts.manager.creation.plan(new_logs(), now_ms=0)
    starts.manager.creation.complete(job, job.run())
    assert disk.directory_syncs.count(root) == 1
    assert sorted(set(disk.directory_syncs) - {root}) == [f"{root}/{name}" for name in NAMES]
    disk.directory_syncs.clear()
    (job,) = starts.manager.deletion.plan(NAMES, now_ms=0)
    job.run()
    checkpoint_files = 3
    assert disk.directory_syncs == [root] * (1 + checkpoint_files)


def test_a_deleted_log_is_closed_at_once_and_its_name_is_free_after_the_job(starts: Starts) -> None:
    log = create_log(starts.manager, NAMES[0], TOPIC_ID, CONFIG)
    (job,) = starts.manager.deletion.plan([NAMES[0]], now_ms=0)
    assert starts.manager.get(NAMES[0]) is None
    with pytest.raises(BrokerError, match="closed"):
        log.reader.read(0, 100)
    jobs, refused = starts.manager.creation.plan(new_logs()[:1], now_ms=0)
    assert not jobs
    assert refused[NAMES[0]].code is ErrorCode.KAFKA_STORAGE_ERROR
    job.run()
    starts.manager.deletion.complete(job)
    assert create_log(starts.manager, NAMES[0], TOPIC_ID, CONFIG).log_end_offset == 0


class FullFor(Disk):
    """A disk without space below one directory."""

    def __init__(self, name: str) -> None:
        self._name = name

    def open(self, path: str, flags: int) -> int:
        if flags & os.O_CREAT and f"/{self._name}/" in path:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().open(path, flags)


def test_a_log_that_has_no_disk_space_does_not_stop_the_creation_of_others(tmp_path: Path) -> None:
    starts = Starts(tmp_path, FullFor("orders-1"))
    (job,), _ = starts.manager.creation.plan(new_logs(), now_ms=0)
    failures = starts.manager.creation.complete(job, job.run())
    assert [(name, type(error)) for name, error in failures.items()] == [(NAMES[1], DiskFull)]
    assert sorted(starts.manager.hosted.current) == [NAMES[0], NAMES[2]]
    starts.crash()
