"""Decides for compaction which batches belong to aborted transactions, and which markers are no longer needed.

Kafka's `CleanedTransactionMetadata`. The records of an aborted transaction are removed. A marker stays while any batch
of its transaction is in the log, even a header without records. Without the marker, a reader or a replay of the log
would treat the transaction as open. Like a tombstone, it stays `delete.retention.ms` longer, for a reader that is
already past the data (KIP-534). Pure.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence

from klamm.records.header import BatchHeader
from klamm_broker.log.segment.transaction_index import AbortedTransaction


class AbortedRanges:
    """The offset ranges of aborted transactions."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._by_producer: defaultdict[int, list[AbortedTransaction]] = defaultdict(list)
        self._by_marker: dict[int, AbortedTransaction] = {}
        for transaction in aborted:
            self._by_producer[transaction.producer_id].append(transaction)
            self._by_marker[transaction.last_offset] = transaction

    def holds(self, header: BatchHeader) -> bool:
        """Returns True if the batch belongs to an aborted transaction."""
        if not header.is_transactional or header.is_control:
            return False
        of_producer: Sequence[AbortedTransaction] = self._by_producer.get(header.producer_id, ())
        slot = bisect_right(of_producer, header.base_offset, key=lambda transaction: transaction.first_offset) - 1
        return slot >= 0 and header.base_offset < of_producer[slot].last_offset

    def ended_by(self, header: BatchHeader) -> AbortedTransaction | None:
        """Returns the transaction that the marker aborted, or None if the marker ended no transaction with records."""
        return self._by_marker.get(header.base_offset)


class MarkerNeeds:
    """Follows the batches of a log in order, to find the markers whose transactions still have batches in the log."""

    def __init__(self) -> None:
        self._unended: set[int] = set()
        """The producers with a batch of a transaction whose marker has not come yet."""

    def note(self, header: BatchHeader) -> None:
        """Notes a data batch that was in the log before this cleaning."""
        if header.is_transactional:
            self._unended.add(header.producer_id)

    def take(self, header: BatchHeader) -> bool:
        """Returns True if a control batch ends a transaction that had a data batch in the log before it."""
        is_needed = header.producer_id in self._unended
        self._unended.discard(header.producer_id)
        return is_needed
