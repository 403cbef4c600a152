"""What replication needs of a log: `PartitionLog` has it, and so has the simulation's log."""

from __future__ import annotations

from typing import Protocol

from klamm.records.header import Buffer
from klamm_broker.log.files.leader_epochs import LeaderEpochCache
from klamm_broker.log.log_config import LogConfig


class ReplicaLog(Protocol):
    """Records in order of their offsets, each stamped with the epoch of the leader that wrote it.

    Every call may raise a BrokerError when the disk fails; what it says of itself is then still true."""

    config: LogConfig
    epochs: LeaderEpochCache

    @property
    def log_start_offset(self) -> int:
        """The offset of the first record that is served."""

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record."""

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the first transaction begins that is undecided, or decided by a marker that is not committed."""

    def commit(self, high_watermark: int) -> None:
        """Everything below the high watermark is committed."""

    def append_as_follower(self, records: Buffer, *, now_ms: int) -> object:
        """Appends whole batches as they are. Raises UnexpectedOffset unless they go on from the log end."""

    def truncate_to(self, offset: int, *, now_ms: int) -> bool:
        """Cuts the records at and above `offset`; whether there were any."""

    def truncate_fully_and_start_at(self, offset: int, *, now_ms: int) -> None:
        """Drops everything; the next record gets `offset`."""

    def advance_log_start(self, offset: int, *, high_watermark: int) -> bool:
        """Records below `offset`, which is at most the high watermark, are no longer served."""
