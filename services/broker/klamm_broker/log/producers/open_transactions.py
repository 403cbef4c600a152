"""Which transactions of one log are open, and up to where the log is stable. Kafka's `ProducerStateManager`, in part.

A transaction is open here from its first batch to its marker. Its marker counts when it is committed, that is below the
high watermark: until then the transaction is decided, and nothing that it wrote is stable. The log is stable up to the
first record of the earliest transaction that is neither (KIP-98). Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from klamm_broker.log.segment.transaction_index import AbortedTransaction


class CompletedTransaction(NamedTuple):
    """What a marker ended."""

    producer_id: int
    first_offset: int
    last_offset: int
    """The offset of the marker."""
    is_aborted: bool
    last_stable_offset: int
    """Where the first transaction begins that is still open, else one past the marker."""


def aborted_by(completed: CompletedTransaction) -> AbortedTransaction:
    """The transaction index's entry of a transaction that an abort marker ended."""
    assert completed.is_aborted, completed
    return AbortedTransaction(
        completed.producer_id, completed.first_offset, completed.last_offset, completed.last_stable_offset
    )


class OpenTransactions:
    """Invariant: open transactions are in order of their first offsets, decided ones in order of their markers'."""

    __slots__ = ("_decided", "_open", "first_unstable_offset")

    def __init__(self) -> None:
        self._open: dict[int, int] = {}
        self._decided: deque[tuple[int, int]] = deque()
        """(first offset, marker's offset) of each transaction whose marker is not committed."""
        self.first_unstable_offset: int | None = None
        """Where the earliest transaction begins that is open, or whose marker is not committed; None: all is stable."""

    def __len__(self) -> int:
        """How many transactions are open."""
        return len(self._open)

    def first_offset(self, producer_id: int) -> int | None:
        """The first offset of the producer's open transaction; None if it has none."""
        return self._open.get(producer_id)

    def earliest_producer_id(self) -> int | None:
        """Whose open transaction begins first; None if none is open. Safe to call from another thread."""
        return next(iter(list(self._open)), None)

    def write(self, producer_id: int, offset: int) -> None:
        """A transactional batch of the producer is at `offset`, the end of the log until now."""
        if producer_id not in self._open:
            self._open[producer_id] = offset
            if self.first_unstable_offset is None:
                self.first_unstable_offset = offset

    def complete(self, producer_id: int, marker_offset: int, *, is_aborted: bool) -> CompletedTransaction | None:
        """A marker of the producer is at `marker_offset`; None if it ends nothing here."""
        first_offset = self._open.pop(producer_id, None)
        if first_offset is None:
            return None
        self._decided.append((first_offset, marker_offset))
        stable_offset = next(iter(self._open.values()), marker_offset + 1)
        return CompletedTransaction(producer_id, first_offset, marker_offset, is_aborted, stable_offset)

    def commit(self, high_watermark: int) -> None:
        """Everything below the high watermark is committed."""
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
        """Transactions whose markers are below `end_offset`, but not committed: (first offset, marker's offset)."""
        return [one for one in self._decided if one[1] < end_offset]

    def add_decided(self, decided: Iterable[tuple[int, int]]) -> None:
        """Adds decided transactions that `decided_before` returned. A snapshot after their markers does not contain
        them."""
        self._decided = deque(sorted({*self._decided, *decided}, key=lambda one: one[1]))
        self._find_first_unstable()

    def restore(self, open_transactions: Iterable[tuple[int, int]]) -> None:
        """(Producer id, first offset) of all that are open; nothing else is known."""
        self._decided.clear()
        self._open = dict(sorted(open_transactions, key=lambda one: one[1]))
        self.first_unstable_offset = next(iter(self._open.values()), None)

    def check_invariants(self, log_end_offset: int) -> None:
        """Asserts what the class's docstring states."""
        first_offsets = list(self._open.values())
        assert first_offsets == sorted(first_offsets), first_offsets
        markers = [marker for _, marker in self._decided]
        assert markers == sorted(markers), markers
        unstable = first_offsets + [first for first, _ in self._decided]
        assert self.first_unstable_offset == min(unstable, default=None), (self.first_unstable_offset, unstable)
        assert max(first_offsets + markers, default=-1) < log_end_offset, (first_offsets, markers, log_end_offset)
