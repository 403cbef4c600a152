"""Quotas of bytes for clients of the gRPC API (KIP-13, KIP-219).

Every answer has the time that its client must pause, and Klamm's clients do so. A server cannot stop reading from a
single caller of HTTP/2. If a unary call comes too early, the broker delays it here. A stream is delayed before its next
message. If a call would wait too long, or too many calls wait, the call is refused before it has any effect. Unlike on
the Kafka listener, a fetch gets the records that were found for it, and its client pauses afterwards.

Other servers have no quotas, and they do not log in. Without an authorizer, the broker recognizes them because they
request internal topics.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from klamm.acls import ANONYMOUS
from klamm.errors import EXCEPTIONS, ErrorCode
from klamm.model import INTERNAL_TOPICS
from klamm_broker.io import metrics
from klamm_server.runtime.clock import Clock
from klamm_server.security.peer_principals import LOGGED_IN
from klamm_server.security.quotas.client_quotas import ClientQuotas
from klamm_server.security.session import CALLER

WAIT_MS_MAX: Final = 30_000
WAITING_MAX: Final = 1_000
"""The most calls that wait at the same time."""
WAITING_BYTES_MAX: Final = 64 * 1024 * 1024
"""The most request bytes of all waiting calls together."""

_ThrottlingQuotaExceededError = EXCEPTIONS[ErrorCode.THROTTLING_QUOTA_EXCEEDED]


class GrpcThrottle:
    """Throttles gRPC clients. The caller awaits `wait_turn` before it handles a call, and calls `charge` with the bytes
    of the call."""

    def __init__(self, quotas: ClientQuotas, clock: Clock, *, knows_callers: bool) -> None:
        """`knows_callers` is True with an authorizer. Then a caller without a session is another server."""
        self._quotas = quotas
        self._clock = clock
        self._knows_callers = knows_callers
        self._waiting = 0
        self._waiting_bytes = 0

    def user(self, topics: Iterable[str]) -> str | None:
        """Returns the user whose quota a call about these topics uses, or None if it uses no quota."""
        if not self._quotas.is_on:
            return None
        caller, logged_in = CALLER.get(), LOGGED_IN.get()
        is_server = caller is None and logged_in is None and self._knows_callers
        if is_server or INTERNAL_TOPICS.issuperset(topics):
            return None
        principal = (logged_in or ANONYMOUS) if caller is None else caller.principal
        return principal.partition(":")[2]

    async def wait_turn(self, key: str, user: str, client_id: str, size_bytes: int = 0) -> None:
        """Waits for the rest of the caller's throttle time. `size_bytes` is the size of the received request. Raises
        ThrottlingQuotaExceededError if the wait would be too long or too many calls wait."""
        rest_ms = self._quotas.throttle_ms(key, user, client_id, self._clock.monotonic_ms())
        if not rest_ms:
            return
        is_full = self._waiting >= WAITING_MAX or self._waiting_bytes + size_bytes > WAITING_BYTES_MAX
        if is_full or rest_ms > WAIT_MS_MAX:
            raise _ThrottlingQuotaExceededError(f"the quota {key} is exceeded: send the request again in {rest_ms} ms")
        self._waiting += 1
        self._waiting_bytes += size_bytes
        try:
            await asyncio.sleep(rest_ms / 1000)
        finally:
            self._waiting -= 1
            self._waiting_bytes -= size_bytes

    def charge(self, key: str, user: str, client_id: str, size_bytes: int) -> int:
        """Charges the bytes. Returns how many milliseconds the caller must pause."""
        rest_ms = self._quotas.charge(key, user, client_id, size_bytes, self._clock.monotonic_ms())
        if rest_ms:
            metrics.on_throttled(key, rest_ms)
        return rest_ms
