"""Many logs made and deleted at once: what a crash or a full disk at any moment leaves, and what it costs."""

from __future__ import annotations

import errno
import itertools
import os
import random
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from log_steps import create_log, delete_log

from klamm.errors import BrokerError, ErrorCode
from klamm.model import TopicId, TopicPartition
from klamm_broker.log.disk import Disk
from klamm_broker.log.log_config import LogConfig
from klamm_broker.log.log_creation import NewLog
from klamm_broker.log.log_manager import LogManager, LogManagerConfig
from klamm_broker.log.storage_failure import DiskFull

CONFIG = LogConfig()
TOPIC_ID = TopicId(uuid.UUID(int=77))
NAMES = [TopicPartition("orders", number) for number in range(3)]


class Killed(BaseException):
    """The process ended here."""


class MortalDisk(Disk):
    """Lets the process do `operations_left` operations that change something; the next one finds it dead."""

    def __init__(self) -> None:
        self.operations_left: int | None = None
        self.directory_syncs: list[str] = []
        self._lock = threading.Lock()

    def _use(self) -> None:
        with self._lock:
            if self.operations_left is None:
                return
            if not self.operations_left:
                raise Killed
            self.operations_left -= 1

    def open(self, path: str, flags: int) -> int:
        if flags & os.O_CREAT:
            self._use()
        return super().open(path, flags)

    def pwrite(self, fd: int, data: bytes, position: int) -> int:  # type: ignore[override]
        self._use()
        return os.pwrite(fd, data, position)

    def fdatasync(self, fd: int) -> None:  # type: ignore[override]
        self._use()
        os.fdatasync(fd)

    def replace(self, source: str, target: str) -> None:  # type: ignore[override]
        self._use()
        os.replace(source, target)

    def make_directory(self, path: str) -> None:
        self._use()
        super().make_directory(path)

    def fsync_directory(self, path: str) -> None:
        self._use()
        self.directory_syncs.append(path)
        super().fsync_directory(path)


class Starts:
    """Log managers over one directory, one after the other; `crash` ends one without a word to the disk."""

    def __init__(self, root: Path, disk: Disk) -> None:
        self.root = root
        self.disk = disk
        self.manager = self._start()

    def _start(self) -> LogManager:
        config = LogManagerConfig(log_dirs=(str(self.root),), cluster_id="c", node_id=1)
        manager = LogManager(config, self.disk, random.Random(0))
        self.deletions = manager.load(lambda topic: CONFIG, now_ms=0)
        return manager

    def crash(self) -> None:
        for log in self.manager.logs.values():
            log.abandon()
        self.manager._directories.unlock()

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


def test_a_kill_at_any_moment_of_a_creation_leaves_what_opens(starts: Starts, disk: MortalDisk, make_batch) -> None:
    for operations in itertools.count():
        (job,), _ = starts.manager.plan_creation(new_logs(), now_ms=0)
        disk.operations_left = operations
        try:
            outcomes = job.run()
        except Killed:
            disk.operations_left = None
        else:
            break
        manager = starts.restart()
        assert not manager.offline_log_dirs()
        for name, log in manager.logs.items():
            assert name in NAMES
            assert log.topic_id in (TOPIC_ID, None)
            assert log.log_end_offset == 0
        for name in list(manager.logs):
            manager.remove_files(delete_log(manager, name, now_ms=0))
    disk.operations_left = None
    assert operations > 10 * len(NAMES)
    assert not starts.manager.complete_creation(job, outcomes)
    for name in NAMES:
        starts.manager.logs[name].append_as_leader(make_batch(2), leader_epoch=0, now_ms=0)
    found = starts.restart().logs
    assert {name: (log.topic_id, log.log_end_offset) for name, log in found.items()} == dict.fromkeys(
        NAMES, (TOPIC_ID, 2)
    )


def test_a_kill_at_any_moment_of_a_deletion_keeps_a_log_whole_or_removes_it(
    starts: Starts, disk: MortalDisk, make_batch
) -> None:
    for operations in itertools.count():
        for name in set(NAMES) - starts.manager.logs.keys():
            log = create_log(starts.manager, name, TOPIC_ID, CONFIG)
            log.append_as_leader(make_batch(2), leader_epoch=0, now_ms=0)
        (job,) = starts.manager.plan_deletion(NAMES, now_ms=0)
        disk.operations_left = operations
        try:
            job.run()
        except Killed:
            disk.operations_left = None
        else:
            break
        manager = starts.restart()
        assert all(log.log_end_offset == 2 for log in manager.logs.values())
        assert len(manager.logs) + len(starts.deletions) == len(NAMES)
        for deletion in starts.deletions:
            manager.remove_files(deletion)
    disk.operations_left = None
    assert operations > len(NAMES)
    assert len(starts.manager.complete_deletion(job)) == len(NAMES)
    assert not starts.restart().logs


def test_the_log_dir_is_synced_once_for_all(starts: Starts, disk: MortalDisk) -> None:
    root = str(starts.root)
    disk.directory_syncs.clear()
    (job,), _ = starts.manager.plan_creation(new_logs(), now_ms=0)
    starts.manager.complete_creation(job, job.run())
    assert disk.directory_syncs.count(root) == 1
    assert sorted(set(disk.directory_syncs) - {root}) == [f"{root}/{name}" for name in NAMES]
    disk.directory_syncs.clear()
    (job,) = starts.manager.plan_deletion(NAMES, now_ms=0)
    job.run()
    checkpoint_files = 3
    assert disk.directory_syncs == [root] * (1 + checkpoint_files)


def test_deleted_logs_are_out_of_service_at_once_and_their_names_free_when_it_is_done(starts: Starts) -> None:
    log = create_log(starts.manager, NAMES[0], TOPIC_ID, CONFIG)
    (job,) = starts.manager.plan_deletion([NAMES[0]], now_ms=0)
    assert starts.manager.get(NAMES[0]) is None
    with pytest.raises(BrokerError, match="closed"):
        log.read(0, 100)
    jobs, refused = starts.manager.plan_creation(new_logs()[:1], now_ms=0)
    assert not jobs
    assert refused[NAMES[0]].code is ErrorCode.KAFKA_STORAGE_ERROR
    job.run()
    starts.manager.complete_deletion(job)
    assert create_log(starts.manager, NAMES[0], TOPIC_ID, CONFIG).log_end_offset == 0


class FullFor(Disk):
    """No space below one directory."""

    def __init__(self, name: str) -> None:
        self._name = name

    def open(self, path: str, flags: int) -> int:
        if flags & os.O_CREAT and f"/{self._name}/" in path:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().open(path, flags)


def test_a_log_without_room_does_not_keep_the_others_from_being_made(tmp_path: Path) -> None:
    starts = Starts(tmp_path, FullFor("orders-1"))
    (job,), _ = starts.manager.plan_creation(new_logs(), now_ms=0)
    failures = starts.manager.complete_creation(job, job.run())
    assert [(name, type(error)) for name, error in failures.items()] == [(NAMES[1], DiskFull)]
    assert sorted(starts.manager.logs) == [NAMES[0], NAMES[2]]
    starts.crash()
