"""Bounds how long the event loop may check the records of one request.

A batch of a megabyte can have a million records, or a gigabyte of them when it is decompressed. So the checks say
beforehand how much work they are about to do. When the budget is used up, they raise OverBudgetError, and the caller
repeats them on a thread with a larger budget, and then on one without. The amounts are nanoseconds on a usual server.
They only need to have the right order of magnitude, because the budget of the event loop is a tenth of the longest turn
that is allowed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Final

from klamm.errors import ErrorCode

TURN_NS: Final = 5_000_000
"""The budget of one request."""

LATE_NS: Final = 200_000_000
"""The budget of a thread that many requests share. A request that needs more has to use another thread."""

RECORD_NS: Final = 100
"""Finding a record and its timestamp."""
KEY_NS: Final = 400
"""Reading the key and the offset of a record."""
DECOMPRESSED_BYTE_NS: Final = 1
COMPRESSED_BYTE_NS: Final = 20
"""Compressing a byte again, with the slowest codec."""

WHOLE_BYTES_MAX: Final = 8 * 1024 * 1024
"""The most decompressed bytes of a batch that are read at once. The records of a larger batch are read in pieces, so
that it takes no more memory."""
WHOLE_NS: Final = WHOLE_BYTES_MAX * DECOMPRESSED_BYTE_NS
"""The budget that allows a batch of that size."""


class OverBudgetError(Exception):
    """The work for one request exceeds its budget."""


class CheckBudget:
    """The rest of the budget of one request."""

    __slots__ = ("left_ns",)

    def __init__(self, left_ns: int = TURN_NS) -> None:
        self.left_ns = left_ns

    @property
    def is_bounded(self) -> bool:
        return self.left_ns < sys.maxsize

    def pacing(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """Yields the pieces of a large batch. Raises the exceptions of `take`, so that work on them can be stopped."""
        for piece in pieces:
            self.take(0)
            yield piece

    def take(self, cost_ns: int) -> None:
        """Uses up a part of the budget. Raises OverBudgetError if it has less left."""
        if cost_ns > self.left_ns:
            raise OverBudgetError
        self.left_ns -= cost_ns


class LongBudget(CheckBudget):
    """A budget without a bound, for work that may take minutes. Its owner can stop the work."""

    __slots__ = ("is_stopped",)

    def __init__(self) -> None:
        super().__init__(sys.maxsize)
        self.is_stopped = False

    def take(self, cost_ns: int) -> None:
        """Raises the exception of NOT_LEADER_OR_FOLLOWER if the work was stopped, because the broker stops."""
        if self.is_stopped:
            raise ErrorCode.NOT_LEADER_OR_FOLLOWER.exception("the broker stopped while it read the records")
