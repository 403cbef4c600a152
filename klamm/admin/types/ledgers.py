"""Batch ledgers."""

from __future__ import annotations

from dataclasses import dataclass

from klamm.ledger_ids import LedgerId


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenPart:
    """An open transaction of a batch ledger."""

    transactional_id: str
    prepared_ms: int
    """The time at which the transaction was prepared, in ms since the epoch; -1: it is not prepared, and its
    transaction.timeout.ms ends it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerListing:
    """A batch ledger."""

    ledger: LedgerId
    run_id: str
    """The run that may decide."""
    committed_batch_id: int
    """The last one that counts; -1: none does."""
    last_update_ms: int
    open_parts: tuple[OpenPart, ...]
