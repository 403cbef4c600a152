"""The requests and events that a shard of transactions handles, and its answers."""

from __future__ import annotations

from klamm_coordinator.ledger.messages import LedgerReply, LedgerRequest
from klamm_coordinator.transaction.messages import (
    AddReply,
    EndReply,
    IdRequest,
    InitReply,
    MarkersWritten,
    VerifyPartitions,
    VerifyReply,
)

Request = IdRequest | VerifyPartitions | LedgerRequest
Reply = InitReply | AddReply | VerifyReply | EndReply | LedgerReply
TransactionEvent = Request | MarkersWritten
