"""The open transactions of one log, and the log's last stable offset. Kafka's `ProducerStateManager`, in part.

A transaction is open from its first batch to its marker. When the marker is written, the transaction is decided. Its
records become stable when the marker is committed, that is, below the high watermark. The log is stable up to the first
record of the earliest transaction that is open or decided but not committed (KIP-98). Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from klamm_broker.log.segment.transaction_index import AbortedTransaction


class CompletedTransaction(NamedTuple):
    """A transaction that a marker ended."""

    producer_id: int
    first_offset: int
    last_offset: int
    """The offset of the marker."""
    is_aborted: bool
    last_stable_offset: int
    """The first offset of the earliest transaction that is still open, or the offset after the marker."""


def aborted_by(completed: CompletedTransaction) -> AbortedTransaction:
    """Returns the transaction index entry of a transaction that an abort marker ended."""
    assert completed.is_aborted, completed
    return AbortedTransaction(
        completed.producer_id, completed.first_offset, completed.last_offset, completed.last_stable_offset
    )


class OpenTransactions:
    """The open and decided transactions of one log.

    Invariant: open transactions are in the order of their first offsets, decided ones in the order of their markers."""

    __slots__ = ("_decided", "_open", "first_unstable_offset")

    def __init__(self) -> None:
        self._open: dict[int, int] = {}
        self._decided: deque[tuple[int, int]] = deque()
        """The (first offset, marker's offset) of each transaction whose marker is not committed."""
        self.first_unstable_offset: int | None = None
        """The first offset of the earliest transaction that is open, or whose marker is not committed. None if all
        records are stable."""

    def __len__(self) -> int:
        """Returns the number of open transactions."""
        return len(self._open)

    def first_offset(self, producer_id: int) -> int | None:
        """Returns the first offset of the producer's open transaction, or None if it has none."""
        return self._open.get(producer_id)

    def earliest_producer_id(self) -> int | None:
        """Returns the producer whose open transaction begins first, or None. Other threads may call it."""
        return next(iter(list(self._open)), None)

    def write(self, producer_id: int, offset: int) -> None:
        """Notes a transactional batch of the producer at `offset`, the end of the log before it."""
        if producer_id not in self._open:
            self._open[producer_id] = offset
            if self.first_unstable_offset is None:
                self.first_unstable_offset = offset

    def complete(self, producer_id: int, marker_offset: int, *, is_aborted: bool) -> CompletedTransaction | None:
        """Notes a marker of the producer at `marker_offset`. Returns the transaction that it ended, or None."""
        first_offset = self._open.pop(producer_id, None)
        if first_offset is None:
            return None
        self._decided.append((first_offset, marker_offset))
        stable_offset = next(iter(self._open.values()), marker_offset + 1)
        return CompletedTransaction(producer_id, first_offset, marker_offset, is_aborted, stable_offset)

    def commit(self, high_watermark: int) -> None:
        """Drops decided transactions whose markers are below the high watermark, because they are committed."""
        decided = self._decided
        if not decided or decided[0][1] >= high_watermark:
            return
        while decided and decided[0][1] < high_watermark:
            decided.popleft()
        self._find_first_unstable()

    def _find_first_unstable(self) -> None:
        first_offsets = [first for first, _ in self._decided]
        first_offsets += list(self._open.values())[:1]
        self.first_unstable_offset = min(first_offsets, default=None)

    def decided_before(self, end_offset: int) -> list[tuple[int, int]]:
        """Returns the (first offset, marker's offset) of transactions whose markers are below `end_offset` and not
        committed."""
        return [transaction for transaction in self._decided if transaction[1] < end_offset]

    def add_decided(self, decided: Iterable[tuple[int, int]]) -> None:
        """Adds decided transactions that `decided_before` returned. A snapshot after their markers does not contain
        them."""
        self._decided = deque(sorted({*self._decided, *decided}, key=lambda transaction: transaction[1]))
        self._find_first_unstable()

    def restore(self, open_transactions: Iterable[tuple[int, int]]) -> None:
        """Sets the open transactions, given as (producer id, first offset), and forgets the decided ones."""
        self._decided.clear()
        self._open = dict(sorted(open_transactions, key=lambda open_transaction: open_transaction[1]))
        self.first_unstable_offset = next(iter(self._open.values()), None)

    def check_invariants(self, log_end_offset: int) -> None:
        """Asserts the invariant in the class's docstring."""
        first_offsets = list(self._open.values())
        assert first_offsets == sorted(first_offsets), first_offsets
        markers = [marker for _, marker in self._decided]
        assert markers == sorted(markers), markers
        unstable = first_offsets + [first for first, _ in self._decided]
        assert self.first_unstable_offset == min(unstable, default=None), (self.first_unstable_offset, unstable)
        assert max(first_offsets + markers, default=-1) < log_end_offset, (first_offsets, markers, log_end_offset)
