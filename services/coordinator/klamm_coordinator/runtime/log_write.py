"""What every shard hands to its log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

RecordT = TypeVar("RecordT")


class TxnProducer(NamedTuple):
    """Names one transaction (KIP-890: every transaction has an epoch of its own)."""

    producer_id: int
    epoch: int


class TxnMarker(NamedTuple):
    """How a transaction ended, and on whose word."""

    committed: bool
    coordinator_epoch: int
    """Writer epoch of the transaction's shard."""
    transaction_version: int
    """2: the marker's epoch is one more than that of the transaction's batches (KIP-890)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogWrite(Generic[RecordT]):
    """Records to be appended together, after those of every earlier write."""

    write_id: int
    records: tuple[RecordT, ...]
    producer: TxnProducer | None = None
    """The transaction it is part of, or ends; None: it counts at once."""
    marker: TxnMarker | None = None
    """Instead of records: how the transaction ended."""
