"""failOnDataLoss: fails a query, or logs a warning, if records that it was to read no longer exist."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from klamm.errors import IllegalStateError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LossPolicy:
    """The policy that says if a loss of records ends the query."""

    fail: bool

    def report(self, problem: str) -> None:
        """Logs the loss as a warning, or raises IllegalStateError if it must end the query."""
        if self.fail:
            raise IllegalStateError(
                f"{problem}. Some records may have been missed; set failOnDataLoss=false to continue with the"
                " records that are left"
            )
        log.warning("data loss tolerated (failOnDataLoss=false): %s", problem)
