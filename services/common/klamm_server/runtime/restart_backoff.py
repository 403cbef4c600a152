"""Computes the pause before a process that ended is started again."""

from __future__ import annotations

from typing import Final

PAUSE_MIN_S: Final = 1.0
PAUSE_MAX_S: Final = 30.0
STEADY_S: Final = 10.0
"""A process that ran this long counts as started, as in Docker's restart policy, and its next pause is the shortest
again."""


class RestartBackoff:
    """The pauses before restarts of one process. Each pause is twice the previous one, until the process has run for
    STEADY_S."""

    def __init__(self) -> None:
        self._next_s = PAUSE_MIN_S

    def pause_s(self, *, ran_s: float) -> float:
        """Returns the pause before the next start, after the process ran for `ran_s` seconds."""
        pause_s = PAUSE_MIN_S if ran_s >= STEADY_S else self._next_s
        self._next_s = min(2 * pause_s, PAUSE_MAX_S)
        return pause_s
