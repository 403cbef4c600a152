"""The requests about a transactional id, the events of its shard, and the shard's own requests.

A request carries a `reply_id`; exactly one answer with that id comes back, at once or when the transactional id gets
there. Transactional ids are not empty.
"""

from __future__ import annotations

from dataclasses import dataclass

from klamm.errors import ErrorCode
from klamm.model import TopicPartition
from klamm_coordinator.transaction.metadata import NO_PRODUCER, ProducerIdAndEpoch


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducerId:
    """A producer begins, or begins again after an error (KIP-360)."""

    reply_id: int
    transactional_id: str
    timeout_ms: int
    """The transaction's time-out, at most transaction.max.timeout.ms."""
    expected: ProducerIdAndEpoch | None
    """The producer id and epoch that the producer had until now; None: it is new and takes over from any other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitions:
    """Something is about to be written to these partitions."""

    reply_id: int
    transactional_id: str
    producer: ProducerIdAndEpoch
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyPartitions:
    """Are these part of the transaction? Changes nothing."""

    reply_id: int
    transactional_id: str
    producer: ProducerIdAndEpoch
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTxn:
    """The producer commits or aborts."""

    reply_id: int
    transactional_id: str
    producer: ProducerIdAndEpoch
    committed: bool
    bump_epoch: bool
    """The next transaction has another epoch (KIP-890)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareTxn:
    """All of the open transaction is written: from now on its ledger decides how it ends (KIP-939)."""

    reply_id: int
    transactional_id: str
    """The transactional id of a part."""
    producer: ProducerIdAndEpoch
    run_id: str
    batch_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InitReply:
    """The answer to InitProducerId; with an error there is no producer."""

    error: ErrorCode = ErrorCode.NONE
    producer: ProducerIdAndEpoch = NO_PRODUCER


@dataclass(frozen=True, slots=True, kw_only=True)
class AddReply:
    """All were added, or none."""

    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReply:
    """`partitions` in the order of the request, unless there is an error for all."""

    error: ErrorCode = ErrorCode.NONE
    partitions: tuple[ErrorCode, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EndReply:
    """The decision is durable; `producer` is who writes the next transaction."""

    error: ErrorCode = ErrorCode.NONE
    producer: ProducerIdAndEpoch = NO_PRODUCER


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkersWritten:
    """Every partition of the transaction knows how it ended."""

    transactional_id: str
    marker: ProducerIdAndEpoch


IdRequest = InitProducerId | AddPartitions | PrepareTxn | EndTxn
"""The requests that may have to wait for their transactional id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendMarkers:
    """Tell these partitions how the transaction ended, until each of them has it; then say `MarkersWritten`."""

    transactional_id: str
    marker: ProducerIdAndEpoch
    """Producer id and epoch of the marker."""
    committed: bool
    transaction_version: int
    """2: the marker's epoch is one more than that of what was written."""
    partitions: frozenset[TopicPartition]
