"""The requests to a batch ledger, and the answers. Every request carries a `reply_id`, and its answer has the same
id."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from klamm.errors import ErrorCode
from klamm.ledger_ids import LedgerId
from klamm_coordinator.ledger.ledger import Verdict
from klamm_coordinator.transaction.metadata import ProducerIdAndEpoch


class Part(NamedTuple):
    """A prepared transaction, which is one part of a batch."""

    transactional_id: str
    producer: ProducerIdAndEpoch


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterRun:
    """Announces that a run will write a batch. Fences the earlier runs, and aborts the transactions that they left
    open."""

    reply_id: int
    ledger: LedgerId
    run_id: str
    batch_id: int
    user: str = ""
    """The user for whom the memory of the ledger counts, if the request creates it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecideBatch:
    """Commits a batch with exactly these parts, or aborts it. All other open transactions of the ledger are aborted."""

    reply_id: int
    ledger: LedgerId
    run_id: str
    batch_id: int
    committed: bool
    parts: tuple[Part, ...] = ()
    """The parts of this ledger that are committed. Empty if the batch is aborted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteLedger:
    """Deletes a ledger, and aborts its open transactions."""

    reply_id: int
    ledger: LedgerId


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerReply:
    """The answer to a request about a ledger. The verdict is valid, and durable, only if there is no error."""

    error: ErrorCode = ErrorCode.NONE
    verdict: Verdict = Verdict.UNDECIDED
    problem: str = ""
    """The reason of the error, if the code does not show it."""


LedgerRequest = RegisterRun | DecideBatch | DeleteLedger
