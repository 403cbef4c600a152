"""Counts and logs the retries of a server."""

from __future__ import annotations

import logging
import random

from klamm.retry import Backoff
from klamm.rpc.retrying import Retries
from klamm_server.metrics.instruments import counters

log = logging.getLogger(__name__)

FAILURES = counters(
    "klamm_attempts_failed", "Failed attempts that the server retries, by kind of attempt", ("attempt",)
)


class ServerRetries(Retries):
    """Retries that count and log their failures. `attempt` is the kind of attempt. `of` identifies it in the log.

    Failures in a row are counted. Failure number `warn_from` and every `warn_every`th after it are logged as warnings.
    The others are logged at level DEBUG."""

    def __init__(
        self, attempt: str, of: str, backoff: Backoff, rng: random.Random, *, warn_from: int = 1, warn_every: int = 1
    ) -> None:
        super().__init__(backoff, rng)
        self._attempt = attempt
        self._of = of
        self._counter = FAILURES.labels(attempt)
        self._warn_from = warn_from
        self._warn_every = warn_every

    def on_failure(self, why: str) -> None:
        self._counter.inc()
        after_first = self.failures - self._warn_from
        is_warning = after_first >= 0 and after_first % self._warn_every == 0
        log.log(
            logging.WARNING if is_warning else logging.DEBUG,
            "%s failed, retrying, of=%s failures=%d: %s",
            self._attempt,
            self._of,
            self.failures,
            why,
        )
