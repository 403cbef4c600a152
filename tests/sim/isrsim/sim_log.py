"""A log in memory that behaves as `PartitionLog`, and that can lose records in a power failure.

A record is a batch of its own: (leader epoch, producer, sequence, value), 24 bytes. Its *chain* is a hash of the record
and of all records before it. Two logs are therefore equal up to an offset if one pair of numbers is. The state of its
producers is the real `ProducerStates`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from klamm.records.header import BatchHeader
from klamm_broker.log.files.leader_epochs import LeaderEpochCache
from klamm_broker.log.files.storage_failure import DiskFull, LogDir
from klamm_broker.log.partition.log_flush import LogFlusher
from klamm_broker.log.partition.partition_log import AppendResult
from klamm_broker.log.producers.producer_state import ProducerStates

_RECORD = struct.Struct(">qiiq")
RECORD_BYTES = _RECORD.size
NO_CHAIN = 0


class Record(NamedTuple):
    epoch: int
    producer: int
    sequence: int
    value: int
    chain: int


@dataclass(frozen=True, slots=True)
class SimLogConfig:
    """The settings of a log that replication reads."""

    min_insync_replicas: int
    flush_messages: int = 2**63 - 1
    flush_ms: int = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Located:
    """Records to be sent: `LogReader.locate` names a part of a file, this has the bytes."""

    records: bytes

    @property
    def part(self) -> Located:
        return self

    @property
    def size_bytes(self) -> int:
        return len(self.records)


def encode(records: Iterable[tuple[int, int, int, int]]) -> bytes:
    """(epoch, producer, sequence, value) as they travel."""
    return b"".join(_RECORD.pack(*record) for record in records)


def decode(records: bytes | memoryview) -> list[tuple[int, int, int, int]]:
    """The reverse."""
    return list(_RECORD.iter_unpack(records))


class SimDisk:
    """The disk of a broker's logs."""

    def __init__(self) -> None:
        self.log_dir = LogDir("disk")
        self.room: int | None = None
        """The number of records for which there is space. None for no limit."""

    def take(self, record_count: int) -> None:
        """Uses space for these records. Raises DiskFull."""
        if self.room is not None:
            if record_count > self.room:
                raise DiskFull(self.log_dir, "an append")
            self.room -= record_count


class _EpochFile:
    """The file with the leader epochs. Nothing reads it, because epochs are in the records too."""

    def write(self, version: int, epochs: object) -> None: ...


class _Segments:
    """What the real `LogFlusher` asks about the files of a log. There are none to sync."""

    def __init__(self, log: SimLog) -> None:
        self._log = log
        self.items: list[Any] = []
        self.disk = None
        self.log_dir = log.log_dir
        self.topic_partition = None
        self.directory = ""
        self.created_count = 0
        self.generation = 0
        self.base_offset = 0

    @property
    def active(self) -> _Segments:
        return self

    @property
    def config(self) -> SimLogConfig:
        return self._log.config

    @property
    def next_offset(self) -> int:
        return self._log.log_end_offset

    end_offset = next_offset

    def check_usable(self) -> None: ...

    def slot_of(self, offset: int) -> int:
        return 0


class SimLog:
    """See the module. It starts at offset 0 for ever: nothing is deleted."""

    def __init__(self, config: SimLogConfig, disk: SimDisk | None = None) -> None:
        self.config = config
        self._disk = disk or SimDisk()
        self.epochs = LeaderEpochCache()
        self.producers = ProducerStates()
        self.log_start_offset = 0
        self.log_dir = self._disk.log_dir
        self.records: list[Record] = []
        self.offsets_of: dict[int, list[int]] = {}
        """The offsets of each producer's records."""
        self._segments = segments = _Segments(self)
        epoch_file = _EpochFile()
        self.flusher = LogFlusher(
            cast(Any, segments), self.epochs, cast(Any, epoch_file), recovery_point=0, is_durable=False
        )
        self.version = 0
        """Grows with every change."""

    @property
    def log_end_offset(self) -> int:
        return len(self.records)

    @property
    def durable_count(self) -> int:
        """The number of records that survive a power failure."""
        return self.flusher.synced_offset

    @property
    def reader(self) -> SimLog:
        """Returns the log, which reads itself."""
        return self

    @property
    def first_unstable_offset(self) -> None:
        """There are no transactions."""

    def commit(self, high_watermark: int) -> None:
        """There are no markers."""

    def chain_at(self, end_offset: int) -> int:
        """The chain of all records before `end_offset`."""
        return self.records[end_offset - 1].chain if end_offset else NO_CHAIN

    def append_as_leader(
        self, records: memoryview, *, leader_epoch: int, now_ms: int, guard: None = None, budget: None = None
    ) -> AppendResult:
        base_offset = self.log_end_offset
        batches = decode(records)
        duplicate = self.producers.check([_header(0, *batch) for batch in batches], is_new_log=base_offset == 0)
        if duplicate is not None:
            return AppendResult(duplicate.base_offset, duplicate.next_offset - 1, -1, 0, is_duplicate=True)
        self._disk.take(len(batches))
        for _, producer, sequence, value in batches:
            self._append(leader_epoch, producer, sequence, value)
        return AppendResult(base_offset, self.log_end_offset - 1, -1, 0)

    def append_as_follower(self, records: bytes, *, leader_epoch: int, now_ms: int) -> None:
        try:
            for epoch, producer, sequence, value in decode(records):
                if epoch > leader_epoch:
                    return
                assert epoch >= self.epochs.latest_epoch, (epoch, self.epochs.entries)
                self._disk.take(1)
                self._append(epoch, producer, sequence, value)
        finally:
            self.sync_owed()

    def _append(self, epoch: int, producer: int, sequence: int, value: int) -> None:
        offset = self.log_end_offset
        self.epochs.assign(epoch, offset)
        chain = hash((self.chain_at(offset), epoch, producer, sequence, value))
        self.records.append(Record(epoch, producer, sequence, value, chain))
        self.offsets_of.setdefault(producer, []).append(offset)
        self.producers.note(_header(offset, epoch, producer, sequence, value), base_offset=offset, now_ms=0)
        self.version += 1

    def truncate_to(self, offset: int, *, now_ms: int) -> bool:
        was_longer = offset < self.log_end_offset
        for record in reversed(self.records[offset:]):
            self.offsets_of[record.producer].pop()
        del self.records[offset:]
        self._segments.generation += 1
        self.flusher.truncated()
        self.epochs.truncate_from_end(offset)
        if was_longer and not self.producers.truncate_to(offset):
            self._reload_producers()
        self.version += 1
        return was_longer

    def _reload_producers(self) -> None:
        self.producers.clear()
        for offset, (epoch, producer, sequence, value, _) in enumerate(self.records):
            self.producers.note(_header(offset, epoch, producer, sequence, value), base_offset=offset, now_ms=0)

    def truncate_fully_and_start_at(self, offset: int, *, now_ms: int) -> None:
        raise AssertionError(f"no log starts anywhere but at 0: {offset}")

    def advance_log_start(self, offset: int, *, high_watermark: int) -> bool:
        raise AssertionError(f"no log starts anywhere but at 0: {offset}")

    def sync_owed(self) -> None:
        if self.flusher.owes_sync:
            self.flush()

    def flush(self) -> None:
        """Makes all records durable, so that they survive a power failure."""
        self.flusher.flush(only_records=True)

    def locate(self, offset: int, max_bytes: int, *, min_one: bool) -> Located | None:
        """Returns the records for a fetch from `offset`."""
        count = max(max_bytes // RECORD_BYTES, int(min_one))
        return Located(encode(record[:4] for record in self.records[offset : offset + count]))


def _header(offset: int, epoch: int, producer: int, sequence: int, value: int) -> BatchHeader:
    return BatchHeader(
        base_offset=offset,
        batch_length=0,
        partition_leader_epoch=epoch,
        magic=2,
        crc=0,
        attributes=0,
        last_offset_delta=0,
        base_timestamp_ms=0,
        max_timestamp_ms=0,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=sequence,
        record_count=1,
    )
