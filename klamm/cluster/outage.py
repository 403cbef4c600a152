"""Warns while no server answers a client: at the first failure, and then once a minute."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from klamm.process import PROCESS

log = logging.getLogger(__name__)

_INTERVAL_MS: Final = 60_000


class Outage:
    """The times without an answer of one client."""

    def __init__(
        self, client_id: str, bootstrap_servers: Sequence[str], monotonic_ms: Callable[[], int] | None = None
    ) -> None:
        self._client_id = client_id
        self._bootstrap = ",".join(bootstrap_servers)
        self._monotonic_ms = monotonic_ms or PROCESS.get().monotonic_ms
        self._since_ms: int | None = None
        self._warned_ms = 0

    def note(self, reason: str) -> None:
        """Notes that no server has answered."""
        now_ms = self._monotonic_ms()
        if self._since_ms is None:
            self._since_ms = now_ms
        elif now_ms - self._warned_ms < _INTERVAL_MS:
            return
        self._warned_ms = now_ms
        log.warning(
            "no server answers at %s (%s); trying again client.id=%s for_s=%d",
            self._bootstrap,
            reason,
            self._client_id,
            (now_ms - self._since_ms) // 1000,
        )

    def end(self) -> None:
        """Notes that a server has answered."""
        if self._since_ms is not None:
            after_s = (self._monotonic_ms() - self._since_ms) // 1000
            log.info("a server answers again client.id=%s after_s=%d", self._client_id, after_s)
        self._since_ms = None
