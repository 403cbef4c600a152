"""A batch ledger: the last batch that a query has committed to a sink, and the run that decides about the next batch.

A query has one run after another, because its driver may die and start again. It writes its output in numbered batches.
Many tasks write a batch, each in its own transaction. The ledger's shard has all these transactions, so that one append
decides about the batch and ends them.

Invariants: a run that another run has replaced commits nothing more; a batch is committed once, and the number of the
last committed batch only grows; a run never commits a batch that it has aborted.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

NO_BATCH = -1
FENCED_RUNS_MAX = 8
"""The number of past runs that a ledger remembers. An older run counts as a new one and fences the present run, which
costs a restart but no record."""


class Verdict(enum.IntEnum):
    """The state of a batch, as a run gets it from the ledger."""

    UNDECIDED = 0
    """The run may write the batch and decide about it."""
    COMMITTED = 1
    """The batch is committed, so the run has nothing left to do for it."""
    ABORTED = 2
    """This run has aborted the batch. The next run writes the batch again."""
    FENCED = 3
    """Another run has replaced this run."""
    REWOUND = 4
    """A later batch is committed already, because the query has started from an older checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLedger:
    """The state of one batch ledger, which is also the value of its record."""

    run_id: str
    fenced_run_ids: tuple[str, ...] = ()
    """The ids of the last runs that were replaced, oldest first."""
    committed_batch_id: int = NO_BATCH
    aborted_batch_id: int = NO_BATCH
    """The number of the last batch that the current run has aborted."""
    last_update_ms: int

    def verdict(self, run_id: str, batch_id: int) -> Verdict:
        """Returns the state of the batch for the run `run_id`."""
        if run_id != self.run_id:
            return Verdict.FENCED
        if batch_id <= self.committed_batch_id:
            return Verdict.COMMITTED if batch_id == self.committed_batch_id else Verdict.REWOUND
        return Verdict.ABORTED if batch_id <= self.aborted_batch_id else Verdict.UNDECIDED

    def taken_over(self, run_id: str, now_ms: int) -> BatchLedger:
        """Returns the ledger after another run has replaced its current run."""
        assert run_id != self.run_id, self
        assert run_id not in self.fenced_run_ids, (self, run_id)
        return replace(
            self,
            run_id=run_id,
            fenced_run_ids=(*self.fenced_run_ids, self.run_id)[-FENCED_RUNS_MAX:],
            aborted_batch_id=NO_BATCH,
            last_update_ms=max(now_ms, self.last_update_ms),
        )

    def decided(self, batch_id: int, now_ms: int, *, committed: bool) -> BatchLedger:
        """Returns the ledger after its run has decided about a batch."""
        assert self.verdict(self.run_id, batch_id) is Verdict.UNDECIDED, (self, batch_id)
        last_update_ms = max(now_ms, self.last_update_ms)
        if committed:
            return replace(self, committed_batch_id=batch_id, last_update_ms=last_update_ms)
        return replace(self, aborted_batch_id=batch_id, last_update_ms=last_update_ms)
