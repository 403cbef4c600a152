"""The requests to a batch ledger, and the answers. Like requests of transactions, they carry a `reply_id`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from klamm.errors import ErrorCode
from klamm.ledger_ids import LedgerId
from klamm_coordinator.ledger.ledger import Verdict
from klamm_coordinator.transaction.metadata import ProducerIdAndEpoch


class Part(NamedTuple):
    """A prepared transaction."""

    transactional_id: str
    producer: ProducerIdAndEpoch


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
    """The parts of this ledger. There are none unless it is committed."""


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
    """The reason of the error, if the code does not show it."""


LedgerRequest = RegisterRun | DecideBatch | DeleteLedger
