"""The types with which a Spark query commits a batch as a whole. `klamm.ledger_ids` explains ledgers.

Each task writes its part of the batch in a transaction of its own, and prepares it:

    if admin.register_run(ledger, run_id, batch_id):    # False: the batch is committed already, so write nothing
        producer = Producer(transactional_id=ledger.part(partition, attempt))
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(...)
        part = producer.prepare_transaction(run_id, batch_id)

The driver then commits the parts of all successful tasks with one call:

    admin.commit_batch(ledger, run_id, batch_id, parts)
"""

from __future__ import annotations

from typing import Final, NamedTuple

from klamm.errors import KlammError
from klamm.wire.v1.coordinator_pb2 import (
    BATCH_VERDICT_ABORTED,
    BATCH_VERDICT_FENCED,
    BATCH_VERDICT_REWOUND,
)

PARTS_MAX: Final = 1_000
"""The maximum number of parts of one batch. The decision is one append with a record for each part."""


class PreparedPart(NamedTuple):
    """A prepared transaction, with all its records written, that waits for the decision about its batch."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class RunFencedError(KlammError):
    """Another run of the query has taken over: this one cannot write any more."""


class BatchRewoundError(KlammError):
    """A later batch counts already: the query goes by an older checkpoint than its output."""


class BatchAbortedError(KlammError):
    """This run gave the batch up; the next one writes it again."""


_ERRORS: dict[int, type[KlammError]] = {
    BATCH_VERDICT_ABORTED: BatchAbortedError,
    BATCH_VERDICT_FENCED: RunFencedError,
    BATCH_VERDICT_REWOUND: BatchRewoundError,
}


def verdict_error(verdict: int, run_id: str, batch_id: int) -> KlammError | None:
    """Returns the error that ends the run's work on the batch, or None if the batch is undecided or committed."""
    kind = _ERRORS.get(verdict)
    return None if kind is None else kind(f"batch {batch_id} of run {run_id!r}: {' '.join(str(kind.__doc__).split())}")
