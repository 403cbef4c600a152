"""The write that a shard sends to its log, and the transaction that it may belong to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

RecordT = TypeVar("RecordT")


class TxnProducer(NamedTuple):
    """The producer id and epoch that identify one transaction (KIP-890: every transaction has its own epoch)."""

    producer_id: int
    epoch: int


class TxnMarker(NamedTuple):
    """The result of a transaction, and the epoch of the coordinator that decided it."""

    committed: bool
    coordinator_epoch: int
    """The coordinator epoch of the transaction's shard, which grows with every new owner of the shard."""
    transaction_version: int
    """The transaction version. In version 2, the marker's epoch is one more than the epoch of the transaction's batches
    (KIP-890)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogWrite(Generic[RecordT]):
    """Records that the log appends together, after the records of every earlier write."""

    write_id: int
    records: tuple[RecordT, ...]
    producer: TxnProducer | None = None
    """The transaction that the records belong to, or that `marker` ends. None means that the records are valid at
    once."""
    marker: TxnMarker | None = None
    """The result of the transaction, if this write ends it. Such a write has no records."""
