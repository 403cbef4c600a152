"""`__transaction_state` as a leader with enough replicas serves it: what it has acknowledged stays.

How it does that is what `isrsim` simulates."""

from __future__ import annotations

from collections.abc import Sequence

from klamm.errors import ErrorCode

Entry = tuple[bytes, bytes | None]


class StateLog:
    """Appends are idempotent, and fenced by the epoch of their writer."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._epoch = -1
        self._next_sequence = 0

    def claim(self, epoch: int) -> list[Entry] | None:
        """Returns the entries that the new writer must load, or None if a later writer was faster."""
        if self.append(epoch, 0, []) is not ErrorCode.NONE:
            return None
        return list(self.entries)

    def append(self, epoch: int, sequence: int, entries: Sequence[Entry]) -> ErrorCode:
        """`sequence` counts the batches of one writer."""
        if self.is_fenced(epoch):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if epoch > self._epoch:
            self._epoch, self._next_sequence = epoch, 0
        if sequence < self._next_sequence:
            return ErrorCode.NONE
        assert sequence == self._next_sequence, (sequence, self._next_sequence)
        self._next_sequence += 1
        self.entries.extend(entries)
        return ErrorCode.NONE

    def is_fenced(self, epoch: int) -> bool:
        """True if there is a later writer."""
        return epoch < self._epoch
