"""A batch ledger: which batches of one query's output to one sink count, and whose word decides about the next.

A query runs as one run after another (its driver dies and is started again), and hands over its output in numbered
batches. Each batch is written by many tasks, in a transaction each; the ledger's shard has them all, and one append
both decides about a batch and ends its transactions.

Invariants: of a run that another one has replaced nothing counts any more; a batch is committed once, the number of
the last one only grows; a batch that a run gave up is never committed by that run.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

NO_BATCH = -1
FENCED_RUNS_MAX = 8
"""The number of past runs that a ledger remembers. An older run counts as a new one and fences the present run, which
costs a restart but no record."""


class Verdict(enum.IntEnum):
    """What a run may expect of a batch."""

    UNDECIDED = 0
    """It is the run's to write and to decide."""
    COMMITTED = 1
    """It counts: there is nothing left to do."""
    ABORTED = 2
    """This run gave it up; the next one writes it again."""
    FENCED = 3
    """Another run has taken over."""
    REWOUND = 4
    """A later batch counts already: the query goes by an older checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLedger:
    """The value of its record."""

    run_id: str
    fenced_run_ids: tuple[str, ...] = ()
    """The last ones, oldest first."""
    committed_batch_id: int = NO_BATCH
    aborted_batch_id: int = NO_BATCH
    """The last one that this run gave up."""
    last_update_ms: int

    def verdict(self, run_id: str, batch_id: int) -> Verdict:
        """What `run_id` may expect."""
        if run_id != self.run_id:
            return Verdict.FENCED
        if batch_id <= self.committed_batch_id:
            return Verdict.COMMITTED if batch_id == self.committed_batch_id else Verdict.REWOUND
        return Verdict.ABORTED if batch_id <= self.aborted_batch_id else Verdict.UNDECIDED

    def taken_over(self, run_id: str, now_ms: int) -> BatchLedger:
        """The ledger after another run has taken it over."""
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
        """The ledger after its run has decided about a batch."""
        assert self.verdict(self.run_id, batch_id) is Verdict.UNDECIDED, (self, batch_id)
        last_update_ms = max(now_ms, self.last_update_ms)
        if committed:
            return replace(self, committed_batch_id=batch_id, last_update_ms=last_update_ms)
        return replace(self, aborted_batch_id=batch_id, last_update_ms=last_update_ms)
