"""Decodes the batch ledgers that coordinators list."""

from __future__ import annotations

from klamm.admin.types.ledgers import LedgerListing, OpenPart
from klamm.ledger_ids import LedgerId
from klamm.wire.v1 import coordinator_pb2


def ledger_listing(message: coordinator_pb2.ListedLedger) -> LedgerListing:
    return LedgerListing(
        ledger=LedgerId(message.name.sink, message.name.query_id),
        run_id=message.run_id,
        committed_batch_id=message.committed_batch_id,
        last_update_ms=message.last_update_ms,
        open_parts=tuple(
            OpenPart(transactional_id=open_part.transactional_id, prepared_ms=open_part.prepared_ms)
            for open_part in message.open_parts
        ),
    )
