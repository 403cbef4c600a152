"""The costs of a Kafka client's request for its quotas (KIP-13, KIP-124, KIP-219).

The answer is sent immediately, with the throttle time. The broker reads nothing from the connection for that time. A
produce is charged when it arrives, and a fetch when its records are located. If a fetch has too many bytes, it gets no
records, and they are not charged. Time is charged after it was spent, so it throttles the next request, as in Kafka for
one window at most.
"""

from __future__ import annotations

from klamm.quotas import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE
from klamm_server.metrics.throttles import on_throttled
from klamm_server.runtime.clock import Clock
from klamm_server.security.quotas.client_quotas import ClientQuotas


class Throttle:
    """The costs of one request, and the resulting throttle time."""

    __slots__ = ("_client_id", "_clock", "_quotas", "_user", "ms")

    def __init__(self, quotas: ClientQuotas, clock: Clock, principal: str, client_id: str) -> None:
        self._quotas = quotas
        self._clock = clock
        self._user = principal.partition(":")[2]
        self._client_id = client_id
        self.ms = 0
        """The throttle time in milliseconds, the longest of all quotas."""
        throttle_ms = quotas.throttle_ms(REQUEST_PERCENTAGE, self._user, client_id, clock.monotonic_ms())
        self.extend(REQUEST_PERCENTAGE, min(throttle_ms, quotas.span.window_ms))

    def charge_produce(self, size_bytes: int) -> None:
        """Charges the bytes of a produce."""
        self.extend(PRODUCER_BYTE_RATE, self._charge(PRODUCER_BYTE_RATE, size_bytes))

    def fetch_max_bytes(self, max_bytes: int) -> int:
        """Returns `max_bytes`, or the most bytes that the client's quota allows at once. A larger fetch would always be
        refused."""
        burst = self._quotas.burst(CONSUMER_BYTE_RATE, self._user, self._client_id)
        return max_bytes if burst is None else min(max_bytes, int(burst))

    def charge_fetch(self, size_bytes: int) -> bool:
        """Charges the bytes of a fetch. Returns True if the client gets the records now. Otherwise takes the charge
        back."""
        throttle_ms = self._charge(CONSUMER_BYTE_RATE, size_bytes)
        self.extend(CONSUMER_BYTE_RATE, throttle_ms)
        if self.ms:
            self._charge(CONSUMER_BYTE_RATE, -size_bytes)
        return not self.ms

    def charge_time(self, seconds: float) -> None:
        """Counts `seconds` of the broker's time that were spent on the request."""
        self._charge(REQUEST_PERCENTAGE, seconds * 100)

    def _charge(self, key: str, amount: float) -> int:
        return self._quotas.charge(key, self._user, self._client_id, amount, self._clock.monotonic_ms())

    def extend(self, key: str, throttle_ms: int) -> None:
        """Throttles the client for at least `throttle_ms`, because of that quota."""
        if throttle_ms:
            on_throttled(key, throttle_ms)
            self.ms = max(self.ms, throttle_ms)
