from __future__ import annotations

import asyncio
import errno
import logging
import os
import uuid
from pathlib import Path
from types import SimpleNamespace

import pytest

from klamm.model import TopicId, TopicPartition
from klamm_broker.log.files.storage_failure import LogDir
from klamm_broker.replication.full_disks import (
    ALLOCATED_MAX_BYTES,
    ENOUGH_MAX_BYTES,
    REPORT_MS,
    FullDisks,
    enough_bytes,
)
from klamm_broker.replication.resignation_sender import ResignationSender
from klamm_server.runtime.disk import Disk, DiskSpace

TOPIC_ID = TopicId(uuid.UUID(int=7))
GIB = 1 << 30


class SmallDisk(Disk):
    """A disk of 1 GiB with a quota, whose free space the test sets."""

    def __init__(self) -> None:
        self.usable_bytes = 0
        self.allocatable_bytes = GIB
        self.errno = errno.EDQUOT

    def space(self, path):
        return DiskSpace(GIB, self.usable_bytes)

    def allocate(self, directory, size_bytes):
        if size_bytes > min(self.usable_bytes, self.allocatable_bytes):
            raise OSError(self.errno, os.strerror(self.errno))


class World:
    """Four replicas in two log dirs."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.disk = SmallDisk()
        self.a, self.b = LogDir("a"), LogDir("b")
        self.replicas = [self.replica(number, self.a if number < 2 else self.b) for number in range(4)]
        self.resignations = ResignationSender(None, broker_id=1, broker_epoch=lambda: 1, image=lambda: None)
        self.full = FullDisks(self.disk, self.replicas, self.resignations, self)

    @staticmethod
    def replica(number, log_dir):
        name = TopicPartition("t", number)
        return SimpleNamespace(topic_id=TOPIC_ID, topic_partition=name, log=SimpleNamespace(log_dir=log_dir))

    def monotonic_ms(self):
        return self.now_ms

    def resigned(self, log_dir):
        return sorted(number for _, number in self.resignations.resigned_for(log_dir))

    def look(self):
        asyncio.run(self.full.look())


@pytest.fixture
def world():
    return World()


@pytest.fixture
def told(caplog):
    caplog.set_level(logging.INFO, logger="klamm_broker.replication.full_disks")
    return lambda: [(record.levelname, record.getMessage()) for record in caplog.records]


def test_the_replicas_of_a_full_dir_resign_and_those_of_others_do_not(world):
    world.full.on_full(world.a)
    assert (world.resigned(world.a), world.resigned(world.b)) == ([0, 1], [])
    assert (len(world.full), world.a.is_full, world.b.is_full) == (1, True, False)


def test_resigned_replicas_resume_only_with_much_more_space_than_an_append_needs(world):
    world.full.on_full(world.a)
    world.disk.usable_bytes = enough_bytes(GIB) - 1
    world.look()
    assert (world.a.is_full, world.resigned(world.a)) == (True, [0, 1])
    world.disk.usable_bytes += 1
    world.look()
    assert (world.a.is_full, world.resigned(world.a)) == (False, [])
    assert len(world.full) == 0


def test_a_disk_whose_free_space_cannot_be_allocated_counts_as_full(world):
    world.full.on_full(world.a)
    world.disk.usable_bytes, world.disk.allocatable_bytes = GIB, 4096
    world.look()
    assert world.a.is_full
    world.disk.errno = errno.EOPNOTSUPP
    world.look()
    assert not world.a.is_full, "a file system without allocation is not full"


def test_replicas_that_move_into_a_full_dir_resign_and_those_that_move_out_resume(world):
    world.full.on_full(world.a)
    world.replicas.append(world.replica(4, world.a))
    world.replicas[0].log.log_dir = world.b
    world.look()
    assert world.resigned(world.a) == [1, 4]


def test_a_dir_that_failed_is_not_full_any_more(world):
    world.full.on_full(world.a)
    world.a.take_offline(OSError(errno.EIO, "gone"), "append")
    world.look()
    assert (len(world.full), world.a.is_full, world.resigned(world.a)) == (0, False, [])


def test_a_full_disk_is_logged_at_its_start_each_minute_and_at_its_end(world, told):
    for _ in range(100):
        world.full.on_full(world.a)
        world.now_ms += 1_000
        world.look()
    world.disk.usable_bytes = GIB
    world.look()
    began, still, ended = told()
    assert began[0] == "ERROR"
    assert "log_dir=a is full: its 2 replicas accept no records" in began[1]
    assert still == ("ERROR", f"log_dir=a is still full after_s={REPORT_MS // 1000} replicas=2")
    assert ended == ("WARNING", f"log_dir=a has space again after_s=100 usable_bytes={GIB}")


def test_replicas_resign_at_the_start_on_a_full_disk_before_any_append(world):
    world.disk.usable_bytes = enough_bytes(GIB)
    asyncio.run(world.full.look_first([world.a]))
    assert world.resigned(world.a) == []
    world.disk.usable_bytes = 0
    asyncio.run(world.full.look_first([world.a]))
    assert world.resigned(world.a) == [0, 1]


def test_the_required_free_space_grows_with_the_file_system_up_to_a_bound():
    assert [enough_bytes(size) for size in (0, 100 << 20, 1 << 50)] == [0, 1 << 20, ENOUGH_MAX_BYTES]
    assert ALLOCATED_MAX_BYTES < ENOUGH_MAX_BYTES


def test_an_allocation_on_a_real_disk_leaves_no_file(tmp_path: Path) -> None:
    Disk().allocate(str(tmp_path), 1 << 16)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(OSError, match=os.strerror(errno.EINVAL)):
        Disk().allocate(str(tmp_path), 0)
    assert list(tmp_path.iterdir()) == []
