"""Tests the records lent to Kafka fetches: parts of files if that is cheaper and needs no disk read, else copies."""

from __future__ import annotations

import asyncio
import errno
import os
import pathlib
import random
import threading
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from klamm_broker.io.record_file import RecordFile, close_files
from klamm_broker.io.record_reader import COPIED_BYTES_MAX, FILE_BYTES_MIN, RecordReader
from klamm_broker.log.files.storage_failure import LogDir, LogDirFailure
from klamm_broker.log.partition.log_segments import LocatedRecords
from klamm_broker.log.segment.segment_files import FileSlice
from klamm_broker.replica.fetch_reader import LocatedSlice
from klamm_server.runtime.disk import Disk
from tests.support.waiting import settle

CONTENT = random.Random(5).randbytes(10 * FILE_BYTES_MIN)


class ProbedDisk(Disk):
    """A disk whose bytes from `cold_from` on are not in memory. It records which descriptors are open."""

    cold_from = len(CONTENT)

    def __init__(self) -> None:
        self.opened: set[int] = set()

    def preadv(self, fd: int, buffers: Sequence[memoryview], position: int, flags: int) -> int:  # type: ignore[override]
        if position + sum(map(len, buffers)) > self.cold_from:
            raise BlockingIOError(errno.EAGAIN, "not in memory")
        return os.preadv(fd, buffers, position)

    def close(self, fd: int) -> None:
        self.opened.remove(fd)
        os.close(fd)


class Log:
    """A segment's file and its reader."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.path = directory / "00000000000000000000.log"
        self.path.write_bytes(CONTENT)
        self.disk = ProbedDisk()
        self.reader = RecordReader(self.disk, thread_count=1)
        self._segment = SimpleNamespace(files=SimpleNamespace(duplicate_fd=self._open, is_open=False))

    def _open(self) -> int:
        fd = self.disk.open(str(self.path), os.O_RDONLY)
        self.disk.opened.add(fd)
        return fd

    def slices(self, *sizes: int) -> list[LocatedSlice]:
        """Returns adjacent slices of these sizes, from the start of the file."""
        parts = [FileSlice(sum(sizes[:number]), size) for number, size in enumerate(sizes)]
        log_dir = LogDir(str(self.path.parent))
        return [LocatedSlice(log_dir, LocatedRecords(cast("Any", self._segment), part)) for part in parts]

    def lend(self, *sizes: int) -> list[bytes | RecordFile]:
        return asyncio.run(self.reader.lend(self.slices(*sizes)))


@pytest.fixture
def log(tmp_path: pathlib.Path) -> Iterator[Log]:
    log = Log(tmp_path)
    yield log
    log.reader.close()


def test_long_slices_are_returned_as_files_and_short_ones_as_copies(log: Log) -> None:
    lent = log.lend(100, 5 * FILE_BYTES_MIN, 200)
    assert [type(part) for part in lent] == [bytearray, RecordFile, bytearray]
    assert [len(part) for part in lent] == [100, 5 * FILE_BYTES_MIN, 200]
    assert lent[2] == CONTENT[100 + 5 * FILE_BYTES_MIN :][:200]
    assert len(log.disk.opened) == 1
    close_files(lent)
    assert not log.disk.opened


def test_a_short_fetch_is_copied_as_a_whole(log: Log) -> None:
    sizes = [FILE_BYTES_MIN, COPIED_BYTES_MAX - FILE_BYTES_MIN]
    assert (
        log.reader.copy_resident(log.slices(*sizes))
        == log.lend(*sizes)
        == [
            CONTENT[:FILE_BYTES_MIN],
            CONTENT[FILE_BYTES_MIN:COPIED_BYTES_MAX],
        ]
    )
    assert log.reader.copy_resident(log.slices(*sizes, 1)) is None
    log.disk.cold_from = COPIED_BYTES_MAX - 1
    assert log.reader.copy_resident(log.slices(*sizes)) is None
    assert not log.disk.opened


def test_short_slices_alone_open_no_file(log: Log) -> None:
    assert log.lend(100, 200) == [CONTENT[:100], CONTENT[100:300]]
    assert not log.disk.opened


@pytest.mark.parametrize("cold_from", [0, 5 * FILE_BYTES_MIN, 8 * FILE_BYTES_MIN - 1])
def test_records_that_are_not_in_the_page_cache_are_read_by_a_thread(log: Log, cold_from: int) -> None:
    log.disk.cold_from = cold_from
    assert log.lend(2 * FILE_BYTES_MIN, 6 * FILE_BYTES_MIN) == [
        CONTENT[: 2 * FILE_BYTES_MIN],
        CONTENT[2 * FILE_BYTES_MIN : 8 * FILE_BYTES_MIN],
    ]
    assert not log.disk.opened


def test_cold_reads_that_are_cancelled_before_they_start_leave_no_file_open(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.disk.cold_from = 0
    read_all, may_read = log.disk.read_all, threading.Event()

    def wait_and_read(fd: int, size_bytes: int, position: int) -> bytes:
        may_read.wait()
        return read_all(fd, size_bytes, position)

    monkeypatch.setattr(log.disk, "read_all", wait_and_read)

    async def scenario() -> Sequence[object]:
        first = asyncio.create_task(log.reader.read(log.slices(100)))
        queued = [asyncio.create_task(log.reader.read(log.slices(100, 200))) for _ in range(20)]
        await settle()
        for task in queued:
            task.cancel()
        await asyncio.gather(*queued, return_exceptions=True)
        opened = len(log.disk.opened)
        may_read.set()
        assert opened == 1, "only the read under way has one"
        return await first

    assert asyncio.run(scenario()) == [CONTENT[:100]]
    assert not log.disk.opened


def test_slow_clients_hold_a_bounded_number_of_files(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("klamm_broker.io.record_reader.LENT_FILES_MAX", 2)
    held = log.lend(COPIED_BYTES_MAX, FILE_BYTES_MIN)
    assert log.lend(2 * COPIED_BYTES_MAX) == [CONTENT[: 2 * COPIED_BYTES_MAX]]
    close_files(held)
    again = log.lend(2 * COPIED_BYTES_MAX)
    assert isinstance(again[0], RecordFile)
    close_files(again)
    assert not log.disk.opened


def test_a_disk_failure_during_the_page_cache_check_leaves_no_file_open(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> int:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(log.disk, "preadv", fail)
    with pytest.raises(LogDirFailure):
        log.lend(2 * COPIED_BYTES_MAX)
    assert not log.disk.opened
