"""The properties of batches, besides those of each of their transactions.

- *batch-whole*: of a batch readers see just the parts that one decision named, or nothing.
- *batch-once*: no two runs' records of a batch are seen.
- *batch-kept*: a batch is seen if a driver got the answer that it is committed, or found it written.
- *ledger*: the valid parts of a batch belong to the run that had the ledger then. No replaced run gets the ledger
  again, and the last committed batch only grows.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from klamm_coordinator.ledger.ledger import FENCED_RUNS_MAX, BatchLedger
from klamm_coordinator.ledger.messages import Part
from klamm_coordinator.ledger.records import LedgerRecord
from klamm_coordinator.transaction.metadata import ProducerIdAndEpoch
from klamm_coordinator.transaction_shard.records import decode_shard_record
from tests.support.violation import require

if TYPE_CHECKING:
    from tests.sim.txnsim.cluster import Cluster


class BatchChecks:
    """Receives the events of a query, and raises an error in the end if a property does not hold."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._part_of: dict[ProducerIdAndEpoch, tuple[str, int]] = {}
        self._asked: defaultdict[tuple[str, int], set[frozenset[ProducerIdAndEpoch]]] = defaultdict(set)
        self._counting: set[int] = set()
        """The batches that a driver knows to be written."""

    @property
    def counting_count(self) -> int:
        return len(self._counting)

    def on_part(self, run_id: str, batch: int, producer: ProducerIdAndEpoch) -> None:
        self._part_of[producer] = (run_id, batch)

    def on_decision_asked(self, run_id: str, batch: int, parts: tuple[Part, ...]) -> None:
        self._asked[run_id, batch].add(frozenset(part.producer for part in parts))

    def on_told_committed(self, batch: int) -> None:
        self._cluster.note(f"batch {batch} counts")
        self._counting.add(batch)

    def check(self) -> None:
        """Checks the properties after no transaction is open any more."""
        run_of = self._check_ledger()
        seen: defaultdict[int, set[ProducerIdAndEpoch]] = defaultdict(set)
        for producer in self._cluster.checks.seen_producers():
            if producer in self._part_of:
                seen[self._part_of[producer][1]].add(producer)
        for batch, producers in seen.items():
            runs = {self._part_of[producer][0] for producer in producers}
            require(len(runs) == 1, f"batch-once: batch {batch} is there of {sorted(runs)}")
            (run_id,) = runs
            require(
                run_id == run_of.get(batch),
                f"ledger: {run_id} committed batch {batch} although {run_of.get(batch)} had it",
            )
            story = f"batch {batch} of {run_id}: seen {sorted(producers)}, asked {self._asked[run_id, batch]}"
            require(frozenset(producers) in self._asked[run_id, batch], f"batch-whole: {story}")
        missing = sorted(self._counting - seen.keys())
        require(not missing, f"batch-kept: batches {missing} are not there")

    def _check_ledger(self) -> dict[int, str]:
        """The run that the ledger belonged to when each batch was committed, by batch."""
        run_of: dict[int, str] = {}
        former: BatchLedger | None = None
        replaced: list[str] = []
        for key, value in self._cluster.log.entries:
            record = decode_shard_record(key, value)
            if not isinstance(record, LedgerRecord):
                continue
            ledger = record.value
            assert ledger is not None
            is_back = ledger.run_id in replaced[-FENCED_RUNS_MAX:]
            require(not is_back, f"ledger: {ledger.run_id} was replaced, and is back")
            if former is not None:
                is_commit = ledger.committed_batch_id != former.committed_batch_id
                story = f"{former} became {ledger}"
                require(ledger.committed_batch_id >= former.committed_batch_id, f"ledger: {story}")
                require(not is_commit or ledger.run_id == former.run_id, f"ledger: {story}")
                if is_commit:
                    run_of[ledger.committed_batch_id] = ledger.run_id
                if ledger.run_id != former.run_id:
                    replaced.append(former.run_id)
            former = ledger
        return run_of
