"""Quotas of bytes for clients of the gRPC API (KIP-13, KIP-219).

Every answer says how long its client must pause, and Klamm's clients do. A server cannot stop reading from one caller
of HTTP/2. If a unary call comes too early, the broker delays it here; a stream is delayed before its next message. A
call that would wait too long is refused before it has any effect. So is a call beyond the number that may wait. Unlike
at the Kafka listener, a fetch gets the records that were found for it, and its client pauses afterwards.

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
"""Calls that wait at once."""
WAITING_BYTES_MAX: Final = 64 * 1024 * 1024
"""What they have sent already, together."""

_ThrottlingQuotaExceededError = EXCEPTIONS[ErrorCode.THROTTLING_QUOTA_EXCEEDED]


class GrpcThrottle:
    """`wait_turn` before a call is handled, `charge` what it was about."""

    def __init__(self, quotas: ClientQuotas, clock: Clock, *, knows_callers: bool) -> None:
        """`knows_callers`: there is an authorizer, so a caller without a session is another server."""
        self._quotas = quotas
        self._clock = clock
        self._knows_callers = knows_callers
        self._waiting = 0
        self._waiting_bytes = 0

    def user(self, topics: Iterable[str]) -> str | None:
        """Whose quota a call about these topics uses; None: nobody's."""
        if not self._quotas.is_on:
            return None
        caller, logged_in = CALLER.get(), LOGGED_IN.get()
        is_server = caller is None and logged_in is None and self._knows_callers
        if is_server or INTERNAL_TOPICS.issuperset(topics):
            return None
        principal = (logged_in or ANONYMOUS) if caller is None else caller.principal
        return principal.partition(":")[2]

    async def wait_turn(self, key: str, user: str, client_id: str, size_bytes: int = 0) -> None:
        """Returns when the caller has rested for what it has done; `size_bytes` is what it has sent now. Raises
        ThrottlingQuotaExceededError."""
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
        """Counts the bytes. Returns for how many milliseconds the caller has to pause."""
        rest_ms = self._quotas.charge(key, user, client_id, size_bytes, self._clock.monotonic_ms())
        if rest_ms:
            metrics.on_throttled(key, rest_ms)
        return rest_ms
