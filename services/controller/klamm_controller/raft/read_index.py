"""Linearizable reads that write nothing to the log (thesis 6.4, ReadIndex).

A read remembers the high watermark at its arrival, but only once an entry of the leader's own term has committed.
Before that, the high watermark may lag behind entries that an earlier leader acknowledged. The read may be answered
when a majority has confirmed, after the read's arrival, that this leader still leads. Confirmations are counted in
rounds: every message to a replica carries the current round, and the answer echoes it. One round serves all reads that
came before it started. Reads that come during a round wait for the next one.

Leases would save the round trip. Klamm has no leases, because a stalled clock or process would break linearizability.

Invariant: the reads in `_confirming` belong to round `round`, and the reads in `_waiting` came later.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PendingRead:
    """A read request, and the index up to which the state machine must be applied before the read is answered."""

    request_id: int
    end_index: int


class ReadIndex:
    """The waiting reads of one leader."""

    def __init__(self) -> None:
        self.round = 0
        """The newest round that has started."""
        self._waiting: list[PendingRead] = []
        self._confirming: list[PendingRead] = []

    def __len__(self) -> int:
        return len(self._waiting) + len(self._confirming)

    def add(self, request_id: int, high_watermark: int) -> None:
        """Adds a read that arrived at this high watermark."""
        self._waiting.append(PendingRead(request_id, high_watermark))

    def begin_round(self, high_watermark: int) -> bool:
        """Starts a round for the waiting reads, unless a round is in progress. Returns True if a round was started.

        `high_watermark` is the current one, which covers an entry of this term. The high watermark at a read's arrival
        may not."""
        if self._confirming or not self._waiting:
            return False
        self.round += 1
        self._confirming = [PendingRead(read.request_id, max(read.end_index, high_watermark)) for read in self._waiting]
        self._waiting = []
        return True

    def on_confirmed(self, round_: int) -> list[PendingRead]:
        """Returns the reads that may be answered, because a majority has confirmed the round."""
        if round_ < self.round:
            return []
        confirmed, self._confirming = self._confirming, []
        return confirmed

    def abandon(self) -> list[PendingRead]:
        """Removes and returns all reads, which this node cannot answer because it no longer leads."""
        reads = self._confirming + self._waiting
        self._confirming, self._waiting = [], []
        return reads
