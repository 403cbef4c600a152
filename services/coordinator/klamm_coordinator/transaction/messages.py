"""What is asked of a transactional id, what happens to its shard, and what the shard asks for.

A request carries a `reply_id`; exactly one answer with that id comes back, at once or when the transactional id gets
there. Transactional ids are not empty.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from klamm.errors import ErrorCode
from klamm.ledger_ids import LedgerId
from klamm.model import TopicPartition
from klamm_coordinator.transaction.ledger import Verdict
from klamm_coordinator.transaction.metadata import NO_PRODUCER, Producer
from klamm_coordinator.transaction.records import ShardRecord
from klamm_coordinator.write import Write


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducerId:
    """A producer begins, or begins again after an error (KIP-360)."""

    reply_id: int
    transactional_id: str
    timeout_ms: int
    """At most transaction.max.timeout.ms."""
    expected: Producer | None
    """What it was until now; None: it is new and takes over from whoever there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitions:
    """Something is about to be written to these partitions."""

    reply_id: int
    transactional_id: str
    producer: Producer
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyPartitions:
    """Are these part of the transaction? Changes nothing."""

    reply_id: int
    transactional_id: str
    producer: Producer
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTxn:
    """The producer commits or aborts."""

    reply_id: int
    transactional_id: str
    producer: Producer
    committed: bool
    bump_epoch: bool
    """The next transaction has another epoch (KIP-890)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareTxn:
    """All of the open transaction is written: from now on its ledger decides how it ends (KIP-939)."""

    reply_id: int
    transactional_id: str
    """That of a part."""
    producer: Producer
    run_id: str
    batch_id: int


class Part(NamedTuple):
    """A prepared transaction."""

    transactional_id: str
    producer: Producer


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterRun:
    """A run is about to write a batch. The runs before it are fenced, and what they left open is aborted."""

    reply_id: int
    ledger: LedgerId
    run_id: str
    batch_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DecideBatch:
    """The batch counts with just these parts, or not at all. Whatever else of the ledger is open is aborted."""

    reply_id: int
    ledger: LedgerId
    run_id: str
    batch_id: int
    committed: bool
    parts: tuple[Part, ...] = ()
    """Of this ledger; none unless committed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteLedger:
    """Forgets a ledger, and aborts what of it is open."""

    reply_id: int
    ledger: LedgerId


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerReply:
    """The verdict counts if there is no error, and is durable."""

    error: ErrorCode = ErrorCode.NONE
    verdict: Verdict = Verdict.UNDECIDED
    problem: str = ""
    """What was wrong, if the code does not say it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InitReply:
    """With an error there is no producer."""

    error: ErrorCode = ErrorCode.NONE
    producer: Producer = NO_PRODUCER


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
    producer: Producer = NO_PRODUCER


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkersWritten:
    """Every partition of the transaction knows how it ended."""

    transactional_id: str
    marker: Producer


LedgerRequest = RegisterRun | DecideBatch | DeleteLedger
Request = InitProducerId | AddPartitions | VerifyPartitions | PrepareTxn | EndTxn | LedgerRequest
Reply = InitReply | AddReply | VerifyReply | EndReply | LedgerReply


@dataclass(frozen=True, slots=True, kw_only=True)
class SendMarkers:
    """Tell these partitions how the transaction ended, until each of them has it; then say `MarkersWritten`."""

    transactional_id: str
    marker: Producer
    """Producer id and epoch of the marker."""
    committed: bool
    transaction_version: int
    """2: the marker's epoch is one more than that of what was written."""
    partitions: frozenset[TopicPartition]


@dataclass(slots=True)
class Effects:
    """Of one step, each list in order."""

    replies: list[tuple[int, Reply]] = field(default_factory=list)
    writes: list[Write[ShardRecord]] = field(default_factory=list)
    markers: list[SendMarkers] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
