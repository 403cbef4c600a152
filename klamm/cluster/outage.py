"""Warns while no server answers a client: at the first failure, and then once a minute."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

log = logging.getLogger(__name__)

_INTERVAL_S: Final = 60


class Outage:
    """The times without an answer of one client. `clock` returns monotonic seconds."""

    def __init__(
        self, client_id: str, bootstrap_servers: Sequence[str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client_id = client_id
        self._bootstrap = ",".join(bootstrap_servers)
        self._clock = clock
        self._since_s: float | None = None
        self._warned_s = 0.0

    def note(self, reason: str) -> None:
        """Notes that no server has answered."""
        now_s = self._clock()
        if self._since_s is None:
            self._since_s = now_s
        elif now_s - self._warned_s < _INTERVAL_S:
            return
        self._warned_s = now_s
        log.warning(
            "no server answers at %s (%s); trying again client.id=%s for_s=%d",
            self._bootstrap,
            reason,
            self._client_id,
            now_s - self._since_s,
        )

    def end(self) -> None:
        """Notes that a server has answered."""
        if self._since_s is not None:
            log.info("a server answers again client.id=%s after_s=%d", self._client_id, self._clock() - self._since_s)
        self._since_s = None
