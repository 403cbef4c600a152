"""The memory that transactional ids, batch ledgers and parked requests take, in bytes.

The constants are upper bounds of what CPython takes for the objects.
"""

from __future__ import annotations

from typing import Final

from klamm.ledger_ids import LedgerId
from klamm_coordinator.ledger.ledger import FENCED_RUNS_MAX, BatchLedger
from klamm_coordinator.ledger.messages import LedgerRequest
from klamm_coordinator.ledger.records import LedgerRecord
from klamm_coordinator.transaction.messages import AddPartitions, IdRequest
from klamm_coordinator.transaction.metadata import TransactionMetadata
from klamm_coordinator.transaction_shard.records import ShardRecord

ID_BYTES: Final = 1_000
PARTITION_BYTES: Final = 400
"""A partition of a transaction, with the topic's name, which has 249 characters at most."""
LEDGER_BYTES: Final = 2_000
RUN_BYTES: Final = 300
"""A run of a ledger, with the longest run id."""
REQUEST_BYTES: Final = 500


def id_bytes(transactional_id: str, value: TransactionMetadata | None) -> int:
    """Returns the bytes of a transactional id with its transaction, 0 if it does not exist."""
    if value is None:
        return 0
    return ID_BYTES + 4 * len(transactional_id) + PARTITION_BYTES * len(value.partitions)


def ledger_bytes(ledger: LedgerId, value: BatchLedger | None) -> int:
    """Returns the bytes of a batch ledger, 0 if it does not exist. A ledger counts as if it had all its runs."""
    return 0 if value is None else LEDGER_BYTES + 4 * len(ledger.key) + FENCED_RUNS_MAX * RUN_BYTES


def record_key(record: ShardRecord) -> str:
    """Returns the key of the account in which a record counts."""
    return record.ledger.key if isinstance(record, LedgerRecord) else record.transactional_id


def request_key(request: IdRequest | LedgerRequest) -> str:
    """Returns the key of the account in which a parked request counts."""
    return request.ledger.key if isinstance(request, LedgerRequest) else request.transactional_id


def request_bytes(request: IdRequest | LedgerRequest) -> int:
    """Returns the bytes of a request while it is parked."""
    return REQUEST_BYTES + (PARTITION_BYTES * len(request.partitions) if isinstance(request, AddPartitions) else 0)
