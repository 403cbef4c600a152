"""Provides the helpers of the storage tests: batches, logs in a tmp_path, and a disk that fails on demand."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from klamm.model import TopicPartition
from klamm.records.decoder import decode_batch
from klamm.records.encoder import encode_batch
from klamm.records.header import iter_headers
from klamm_broker.log.files.storage_failure import LogDir
from klamm_broker.log.log_config import LogConfig
from klamm_broker.log.partition.log_loader import LoadContext, load_partition
from klamm_broker.log.partition.partition_log import PartitionLog
from klamm_broker.log.segment.segment_pool import SegmentPool
from klamm_server.runtime.disk import Disk

TOPIC_PARTITION = TopicPartition("orders", 0)


class FaultyDisk(Disk):
    """The real disk with faults: errors by operation, short writes, and a budget of bytes (a full disk)."""

    def __init__(self) -> None:
        self.errors: dict[str, int] = {}
        """errno to raise, by operation."""
        self.only_below: str = ""
        """Errors hit only paths that start with this."""
        self.write_limit: int | None = None
        """No single write takes more bytes than this."""
        self.room: int | None = None
        """Bytes that can still be written; None: no limit."""
        self.calls: list[str] = []
        self._paths: dict[int, str] = {}

    def _enter(self, operation: str, path: str) -> None:
        self.calls.append(operation)
        number = self.errors.get(operation)
        if number is not None and path.startswith(self.only_below):
            raise OSError(number, os.strerror(number), path)

    def _allowed(self, size: int) -> int:
        if self.write_limit is not None:
            size = min(size, self.write_limit)
        if self.room is not None:
            if not self.room:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            size = min(size, self.room)
            self.room -= size
        return size

    def open(self, path: str, flags: int) -> int:
        self._enter("open", path)
        fd = super().open(path, flags)
        self._paths[fd] = path
        return fd

    def writev(self, fd: int, buffers: Sequence[Any]) -> int:  # type: ignore[override]
        self._enter("writev", self._paths[fd])
        data = b"".join(buffers)
        return os.write(fd, data[: self._allowed(len(data))])

    def pwrite(self, fd: int, data: Any, position: int) -> int:
        self._enter("pwrite", self._paths[fd])
        return os.pwrite(fd, data[: self._allowed(len(data))], position)

    def pread(self, fd: int, size: int, position: int) -> bytes:
        self._enter("pread", self._paths[fd])
        return os.pread(fd, size, position)

    def ftruncate(self, fd: int, size: int) -> None:
        self._enter("ftruncate", self._paths[fd])
        os.ftruncate(fd, size)

    def dup(self, fd: int) -> int:
        copy = os.dup(fd)
        self._paths[copy] = self._paths[fd]
        return copy

    def fdatasync(self, fd: int) -> None:  # type: ignore[override]
        self._enter("fdatasync", self._paths[fd])
        os.fdatasync(fd)

    def replace(self, source: str, target: str) -> None:  # type: ignore[override]
        self._enter("replace", target)
        os.replace(source, target)


@pytest.fixture
def faulty_disk() -> FaultyDisk:
    return FaultyDisk()


MakeBatch = Callable[..., bytes]


@pytest.fixture(scope="session")
def make_batch() -> MakeBatch:
    """Returns a function `make_batch(count, value_bytes=..., timestamps=[...], **encode_batch_arguments)`."""

    def make(
        count: int = 1, *, value_bytes: int = 20, timestamps: Sequence[int] | None = None, **options: Any
    ) -> bytes:
        times = timestamps if timestamps is not None else [1_000] * count
        records = [(time, b"k%d" % i, bytes([65 + i % 26]) * value_bytes, ()) for i, time in enumerate(times)]
        return encode_batch(records, **options)

    return make


class LogHarness:
    """Opens and reopens one partition log in a directory, as a start after a clean stop or a crash would."""

    def __init__(self, root: Path) -> None:
        self.disk: Disk = Disk()
        self.root = root
        self.directory = root / str(TOPIC_PARTITION)
        self.config = LogConfig(segment_bytes=1024, index_interval_bytes=100)
        self.pool = SegmentPool(3)
        self.log_dir = LogDir(str(root))
        self.opened: list[PartitionLog] = []

    def open(
        self, *, clean: bool = False, recovery_point: int = 0, log_start_offset: int = 0, now_ms: int = 1_000
    ) -> PartitionLog:
        rng = random.Random(1)
        context = LoadContext(
            config=self.config,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            clean_shutdown=clean,
            now_ms=now_ms,
        )
        log = PartitionLog(
            disk=self.disk,
            log_dir=self.log_dir,
            directory=str(self.directory),
            topic_partition=TOPIC_PARTITION,
            topic_id=None,
            config=self.config,
            loaded=load_partition(self.disk, str(self.directory), context, rng),
            pool=self.pool,
            rng=rng,
        )
        self.opened.append(log)
        return log

    def crash(self, log: PartitionLog) -> int:
        """Kills the process, so that nothing more is written. Returns the recovery point of its last checkpoint."""
        log.abandon()
        return log.flusher.recovery_point

    def path(self, base_offset: int, suffix: str = ".log") -> Path:
        return self.directory / f"{base_offset:020d}{suffix}"


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[LogHarness]:
    harness = LogHarness(tmp_path)
    yield harness
    for log in harness.opened:
        log.abandon()


ReadAll = Callable[[PartitionLog], list[tuple[int, bytes | None]]]


@pytest.fixture(scope="session")
def read_all() -> ReadAll:
    """Returns a function that reads every (offset, value) from the log start, in several reads."""

    def read(log: PartitionLog) -> list[tuple[int, bytes | None]]:
        found: list[tuple[int, bytes | None]] = []
        offset = log.log_start_offset
        while True:
            data = log.reader.read(offset, 300).records
            if not data:
                return found
            for position, header in iter_headers(data):
                for record in decode_batch(data, position):
                    if record.offset >= log.log_start_offset:
                        found.append((record.offset, record.value))
                offset = header.next_offset

    return read
