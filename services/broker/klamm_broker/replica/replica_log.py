"""The methods of a log that replication needs. `PartitionLog` and the simulation's log implement them."""

from __future__ import annotations

from typing import Protocol

from klamm.records.header import Buffer
from klamm_broker.log.files.leader_epochs import LeaderEpochCache
from klamm_broker.log.log_config import LogConfig


class ReplicaLog(Protocol):
    """Records in the order of their offsets, each with the epoch of the leader that wrote it.

    Every call may raise a BrokerError if the disk fails. The log's properties stay true after that."""

    config: LogConfig
    epochs: LeaderEpochCache

    @property
    def log_start_offset(self) -> int:
        """The offset of the first record that readers can fetch."""

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record."""

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of the first transaction that is undecided, or whose marker is not committed. None if there
        is none."""

    def commit(self, high_watermark: int) -> None:
        """Marks all records below the high watermark as committed."""

    def append_as_follower(self, records: Buffer, *, leader_epoch: int, now_ms: int) -> object:
        """Appends whole batches unchanged, up to the first one with an epoch after `leader_epoch`. Raises
        UnexpectedOffset unless they start at the log end offset."""

    def truncate_to(self, offset: int, *, now_ms: int) -> bool:
        """Removes the records at and above `offset`. Returns True if there were any."""

    def truncate_fully_and_start_at(self, offset: int, *, now_ms: int) -> None:
        """Removes all records. The next record gets `offset`."""

    def advance_log_start(self, offset: int, *, high_watermark: int) -> bool:
        """Moves the log start offset to `offset`, which is at most the high watermark. Returns True if it moved."""
