"""A log in memory that says of itself what `PartitionLog` does, and what a power failure leaves of it.

A record is (leader epoch, value), 16 bytes; its *chain* is a hash of it and of everything before it, so that two logs
are equal up to an offset when one pair of numbers is.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from klamm_broker.log.leader_epochs import LeaderEpochCache
from klamm_broker.log.partition_log import AppendResult

_RECORD = struct.Struct(">qq")
NO_CHAIN = 0


class Record(NamedTuple):
    epoch: int
    value: int
    chain: int


@dataclass(frozen=True, slots=True)
class SimLogConfig:
    """What replication reads of a log's config."""

    min_insync_replicas: int


def encode(records: Iterable[tuple[int, int]]) -> bytes:
    """(epoch, value) pairs as they travel."""
    return b"".join(_RECORD.pack(epoch, value) for epoch, value in records)


class SimLog:
    """See the module. It starts at offset 0 for ever: nothing is deleted."""

    def __init__(self, config: SimLogConfig) -> None:
        self.config = config
        self.epochs = LeaderEpochCache()
        self.log_start_offset = 0
        self.records: list[Record] = []
        self.durable_count = 0

    @property
    def log_end_offset(self) -> int:
        return len(self.records)

    def chain_at(self, end_offset: int) -> int:
        """Of all records before `end_offset`."""
        return self.records[end_offset - 1].chain if end_offset else NO_CHAIN

    def append_as_leader(self, records: memoryview, *, leader_epoch: int, now_ms: int) -> AppendResult:
        base_offset = self.log_end_offset
        for _, value in _RECORD.iter_unpack(records):
            self._append(leader_epoch, value)
        return appended(base_offset, self.log_end_offset - 1)

    def append_as_follower(self, records: bytes, *, now_ms: int) -> None:
        for epoch, value in _RECORD.iter_unpack(records):
            assert epoch >= self.epochs.latest_epoch, (epoch, self.epochs.entries)
            self._append(epoch, value)

    def _append(self, epoch: int, value: int) -> None:
        self.epochs.assign(epoch, self.log_end_offset)
        chain = hash((self.chain_at(self.log_end_offset), epoch, value))
        self.records.append(Record(epoch, value, chain))

    def truncate_to(self, offset: int, *, now_ms: int) -> bool:
        was_longer = offset < self.log_end_offset
        del self.records[offset:]
        self.durable_count = min(self.durable_count, offset)
        self.epochs.truncate_from_end(offset)
        return was_longer

    def truncate_fully_and_start_at(self, offset: int, *, now_ms: int) -> None:
        raise AssertionError(f"no log starts anywhere but at 0: {offset}")

    def advance_log_start(self, offset: int, *, high_watermark: int) -> bool:
        raise AssertionError(f"no log starts anywhere but at 0: {offset}")

    def flush(self) -> None:
        """All of it survives a power failure."""
        self.durable_count = len(self.records)

    def encoded(self, offset: int, records_max: int) -> bytes:
        """What a fetch from `offset` brings."""
        return encode((record.epoch, record.value) for record in self.records[offset : offset + records_max])


def appended(base_offset: int, last_offset: int) -> AppendResult:
    """An append without log append time."""
    return AppendResult(base_offset, last_offset, -1, 0)
