"""Batch ledgers."""

from __future__ import annotations

from dataclasses import dataclass

from klamm.ledger_ids import LedgerId


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenPart:
    """An open transaction of a batch ledger."""

    transactional_id: str
    prepared_ms: int
    """The time at which the transaction was prepared, in ms since the epoch. It is -1 until then, and the transaction
    ends after transaction.timeout.ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerListing:
    """A batch ledger and its open transactions."""

    ledger: LedgerId
    run_id: str
    """The id of the run that may commit or abort the next batch."""
    committed_batch_id: int
    """The id of the last committed batch, or -1 if there is none."""
    last_update_ms: int
    open_parts: tuple[OpenPart, ...]
