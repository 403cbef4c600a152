"""What compaction makes of transactions: which batches are of aborted ones, and which markers nobody needs any more.

Kafka's `CleanedTransactionMetadata`. What an aborted transaction wrote goes. A marker stays as long as anything of its
transaction is there, if only a header, or a reader, or a replay of the log, would take it for open; and
`delete.retention.ms` longer, as tombstones do, for a reader that was already past the data (KIP-534). Pure.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence

from klamm.records.header import BatchHeader
from klamm_broker.log.segment.transaction_index import AbortedTransaction


class AbortedRanges:
    """Where the records of aborted transactions are."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._by_producer: defaultdict[int, list[AbortedTransaction]] = defaultdict(list)
        self._by_marker: dict[int, AbortedTransaction] = {}
        for one in aborted:
            self._by_producer[one.producer_id].append(one)
            self._by_marker[one.last_offset] = one

    def holds(self, header: BatchHeader) -> bool:
        """Whether the batch is of an aborted transaction."""
        if not header.is_transactional or header.is_control:
            return False
        of_producer: Sequence[AbortedTransaction] = self._by_producer.get(header.producer_id, ())
        slot = bisect_right(of_producer, header.base_offset, key=lambda one: one.first_offset) - 1
        return slot >= 0 and header.base_offset < of_producer[slot].last_offset

    def ended_by(self, header: BatchHeader) -> AbortedTransaction | None:
        """The transaction that a marker aborted, if it wrote anything."""
        return self._by_marker.get(header.base_offset)


class MarkerNeeds:
    """Goes through the batches of a log, in order: whose marker ends something that is still there."""

    def __init__(self) -> None:
        self._unended: set[int] = set()
        """Producers with a batch of a transaction whose marker is still to come."""

    def note(self, header: BatchHeader) -> None:
        """A data batch that was there before this cleaning."""
        if header.is_transactional:
            self._unended.add(header.producer_id)

    def take(self, header: BatchHeader) -> bool:
        """Returns whether a control batch ends a transaction of which the log had a data batch before it."""
        is_needed = header.producer_id in self._unended
        self._unended.discard(header.producer_id)
        return is_needed
