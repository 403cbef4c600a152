"""Limits how fast each address may connect (KIP-612). The server does not read a connection that comes too fast until
the rate allows it.

Kafka closes such a connection after a second at most. Here it is served in the end, so that a fleet that comes back
after an outage needs no retries. The number of delayed connections is bounded. A connection beyond it is refused and
does not count.
"""

from __future__ import annotations

import heapq
from typing import Final

from klamm.quotas import CONNECTION_CREATION_RATE
from klamm_server.security.quotas.client_quotas import ClientQuotas
from klamm_server.security.quotas.connection_pace import ConnectionPace

MUTED_MAX: Final = 1_000


class ConnectionRates:
    """The rates of connections at one listener, by address and for all addresses together. Times are monotonic
    milliseconds."""

    def __init__(self, quotas: ClientQuotas, pace: ConnectionPace) -> None:
        self._quotas = quotas
        self._pace = pace
        self._until_ms: list[int] = []
        """A heap with the end of each connection's delay. A connection that ends earlier stays in it."""

    @property
    def is_on(self) -> bool:
        """True if there is a quota of addresses, or a limit for all of them."""
        return self._quotas.bounds_addresses or self._pace.is_on

    def admit(self, address: str, now_ms: int) -> int | None:
        """Counts a new connection. Returns how long it must be delayed in milliseconds, or None if it is refused."""
        quota_ms = self._quotas.charge_address(CONNECTION_CREATION_RATE, address, 1, now_ms)
        throttle_ms = max(quota_ms, self._pace.note(now_ms))
        if not throttle_ms:
            return 0
        while self._until_ms and self._until_ms[0] <= now_ms:
            heapq.heappop(self._until_ms)
        if len(self._until_ms) >= MUTED_MAX:
            self._quotas.charge_address(CONNECTION_CREATION_RATE, address, -1, now_ms)
            self._pace.take_back(now_ms)
            return None
        heapq.heappush(self._until_ms, now_ms + throttle_ms)
        return throttle_ms
