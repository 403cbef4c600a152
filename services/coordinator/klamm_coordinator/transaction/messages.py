"""The requests about a transactional id, the events of its shard, and the shard's own requests.

A request carries a `reply_id`. Exactly one answer with that id follows, at once or later. Transactional ids are not
empty.
"""

from __future__ import annotations

from dataclasses import dataclass

from klamm.errors import ErrorCode
from klamm.model import TopicPartition
from klamm_coordinator.transaction.metadata import NO_PRODUCER, ProducerIdAndEpoch


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducerId:
    """A producer's request for an id and epoch, at its start or after an error (KIP-360)."""

    reply_id: int
    transactional_id: str
    timeout_ms: int
    """The transaction's time-out, at most transaction.max.timeout.ms."""
    expected: ProducerIdAndEpoch | None
    """The producer id and epoch that the producer has had. None means that it is new and replaces any other
    producer."""
    user: str = ""
    """The user for whom the memory of the transactional id counts, if the request creates it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitions:
    """A producer's request to add these partitions to its transaction, before it writes to them."""

    reply_id: int
    transactional_id: str
    producer: ProducerIdAndEpoch
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyPartitions:
    """A broker's question whether these partitions are part of the transaction. The request changes nothing."""

    reply_id: int
    transactional_id: str
    producer: ProducerIdAndEpoch
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTxn:
    """A producer's request to commit or abort its transaction."""

    reply_id: int
    transactional_id: str
    producer: ProducerIdAndEpoch
    committed: bool
    bump_epoch: bool
    """True if the next transaction gets another epoch (KIP-890)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareTxn:
    """Announces that all of the open transaction is written. After this, its ledger decides how it ends (KIP-939)."""

    reply_id: int
    transactional_id: str
    """The transactional id, which belongs to a part of a batch."""
    producer: ProducerIdAndEpoch
    run_id: str
    batch_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InitReply:
    """The answer to InitProducerId. With an error, it has no producer."""

    error: ErrorCode = ErrorCode.NONE
    producer: ProducerIdAndEpoch = NO_PRODUCER


@dataclass(frozen=True, slots=True, kw_only=True)
class AddReply:
    """The answer to AddPartitions. All partitions were added, or none."""

    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReply:
    """The answer to VerifyPartitions. `partitions` has the errors in the order of the request, unless `error` is
    set."""

    error: ErrorCode = ErrorCode.NONE
    partitions: tuple[ErrorCode, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EndReply:
    """The answer to EndTxn after the decision is durable. `producer` has the id and epoch of the next transaction."""

    error: ErrorCode = ErrorCode.NONE
    producer: ProducerIdAndEpoch = NO_PRODUCER


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkersWritten:
    """Reports that every partition of the transaction has the marker that ends it."""

    transactional_id: str
    marker: ProducerIdAndEpoch


IdRequest = InitProducerId | AddPartitions | PrepareTxn | EndTxn
"""The requests that may have to wait for their transactional id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendMarkers:
    """Orders the shell to send the marker to these partitions until each of them has it, and then to report
    `MarkersWritten`."""

    transactional_id: str
    marker: ProducerIdAndEpoch
    """Producer id and epoch of the marker."""
    committed: bool
    transaction_version: int
    """The transaction version. In version 2, the marker's epoch is one more than the epoch of the transaction's
    batches."""
    partitions: frozenset[TopicPartition]
