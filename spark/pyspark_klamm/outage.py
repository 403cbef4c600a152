"""Says when a query should warn that no server answers: at the first failure, and then once a minute. Pure."""

from __future__ import annotations

from typing import Final

WARN_EVERY_S: Final = 60.0


class Outage:
    """The time during which no server answers, if there is one."""

    def __init__(self) -> None:
        self._warned_at_s: float | None = None

    def is_worth_a_warning(self, now_s: float) -> bool:
        """Returns True if the failure of a call should be logged, and counts it as logged."""
        if self._warned_at_s is not None and now_s - self._warned_at_s < WARN_EVERY_S:
            return False
        self._warned_at_s = now_s
        return True

    def end(self) -> None:
        """Ends the outage, so that the next failure is a first one."""
        self._warned_at_s = None
