"""Linearizable reads without writing anything (thesis 6.4, ReadIndex).

A read takes the high watermark at its arrival, once an entry of the leader's own term is committed (before that the
high watermark may be behind what an earlier leader acknowledged). It may be answered when a majority has confirmed,
after its arrival, that this leader still leads. Confirmations are counted in rounds: every message to a replica
carries the current round and its answer echoes it. One round serves all the reads that came before it started; those
that come while it is under way wait for the next one.

Leases on clocks would save the round trip, and lose the guarantee when a clock or a process stalls; so there are none.

Invariant: `_confirming` reads belong to round `round`; `_waiting` ones came later.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PendingRead:
    """A request, and how far the state machine must be to serve it."""

    request_id: int
    end_index: int


class ReadIndex:
    """The reads of one leader."""

    def __init__(self) -> None:
        self.round = 0
        """The newest round that began."""
        self._waiting: list[PendingRead] = []
        self._confirming: list[PendingRead] = []

    def __len__(self) -> int:
        return len(self._waiting) + len(self._confirming)

    def add(self, request_id: int, high_watermark: int) -> None:
        """A read that saw this high watermark when it came."""
        self._waiting.append(PendingRead(request_id, high_watermark))

    def begin_round(self, high_watermark: int) -> bool:
        """Begins a round for the reads that wait, unless one is under way; returns whether one began.

        `high_watermark` is the present one: it contains an entry of this term, which that of the arrival may not."""
        if self._confirming or not self._waiting:
            return False
        self.round += 1
        self._confirming = [PendingRead(read.request_id, max(read.end_index, high_watermark)) for read in self._waiting]
        self._waiting = []
        return True

    def on_confirmed(self, round_: int) -> list[PendingRead]:
        """A majority confirmed that round: the reads that may be answered."""
        if round_ < self.round:
            return []
        confirmed, self._confirming = self._confirming, []
        return confirmed

    def abandon(self) -> list[PendingRead]:
        """The leader leads no more: the reads that it cannot answer."""
        reads = self._confirming + self._waiting
        self._confirming, self._waiting = [], []
        return reads
