"""Quotas for clients of the gRPC API: bytes, and the event loop's time (KIP-13, KIP-124, KIP-219).

The answers of Produce and Fetch have the time that their client must pause, and Klamm's clients do so. A server cannot
stop reading from a single caller of HTTP/2. If a unary call comes too early, the server delays it here. A stream is
delayed before its next message. If a call would wait too long, or too many calls wait, the call is refused before it
has any effect. Unlike on the Kafka listener, a fetch gets the records that were found for it, and its client pauses
afterwards.

Time is charged after it was spent, so it delays the next call, as in Kafka for one window at most. Otherwise a heavy
client would lose its sessions.

Other servers have no quotas, and they do not log in. Without an authorizer, the broker recognizes them because they
request internal topics. Coordinators and controllers then charge only clients that have logged in. They charge no
calls that a broker forwards, because the broker charges its client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final, TypeVar

from klamm.acls import ANONYMOUS
from klamm.errors import EXCEPTIONS, ErrorCode
from klamm.model import INTERNAL_TOPICS
from klamm.quotas import REQUEST_PERCENTAGE
from klamm.wire.calls import CallContext
from klamm_server.metrics.throttles import on_throttled
from klamm_server.runtime.charged import charged
from klamm_server.runtime.clock import Clock
from klamm_server.security.gate import is_forwarded
from klamm_server.security.peer_principals import LOGGED_IN
from klamm_server.security.quotas.client_quotas import ClientQuotas
from klamm_server.security.quotas.precedence import Quotas
from klamm_server.security.session import CALLER

T = TypeVar("T")

WAIT_MS_MAX: Final = 30_000
WAITING_MAX: Final = 1_000
"""The most calls that wait at the same time."""
WAITING_BYTES_MAX: Final = 64 * 1024 * 1024
"""The most request bytes of all waiting calls together."""

_ThrottlingQuotaExceededError = EXCEPTIONS[ErrorCode.THROTTLING_QUOTA_EXCEEDED]


class CallThrottle:
    """The throttle of one server. It knows the waiting calls of all clients."""

    def __init__(
        self,
        quotas: ClientQuotas,
        clock: Clock,
        *,
        knows_callers: bool = True,
        newest: Callable[[], Quotas] | None = None,
    ) -> None:
        """`knows_callers` is True if a caller without a session or a login is another server. `newest` returns the
        quotas that the metadata have now. Without it, the caller applies changes to `quotas`."""
        self._newest = newest
        self.quotas = quotas
        self.clock = clock
        self._knows_callers = knows_callers
        self._waiting = 0
        self._waiting_bytes = 0

    def caller_about(self, topics: Iterable[str], client_id: str) -> ThrottledCaller | None:
        """Returns the caller of a call about these topics, or None if the call uses no quota."""
        return None if self.quotas.is_on and INTERNAL_TOPICS.issuperset(topics) else self.caller(client_id)

    def caller(self, client_id: str) -> ThrottledCaller | None:
        """Returns the caller of a call, or None if the call uses no quota."""
        if self._newest is not None:
            self.quotas.apply(self._newest())
        if not self.quotas.is_on:
            return None
        session, logged_in = CALLER.get(), LOGGED_IN.get()
        if session is None and logged_in is None and self._knows_callers:
            return None
        principal = (logged_in or ANONYMOUS) if session is None else session.principal
        return ThrottledCaller(self, principal.partition(":")[2], client_id)

    def limited(self, answer: Callable[[Any, CallContext], Coroutine[Any, Any, T]]) -> Callable[[Any, Any], Any]:
        """Returns a unary call's handler that limits how much of the event loop's time a client's calls use, by
        `request_percentage`."""

        async def call(request: Any, context: CallContext) -> T:
            # Without a session, there is no gate that refuses clients who claim to forward a call.
            is_for_another = CALLER.get() is not None and is_forwarded(context)
            caller = None if is_for_another else self.caller(getattr(request, "client_id", ""))
            if caller is None:
                return await answer(request, context)
            await caller.wait_turn()
            return await charged(answer(request, context), caller.charge_time)

        return call

    async def wait(self, key: str, throttle_ms: int, size_bytes: int) -> None:
        """Lets a call of `size_bytes` wait, because of the quota `key`. Raises ThrottlingQuotaExceededError if the wait
        would be too long or too many calls wait."""
        is_full = self._waiting >= WAITING_MAX or self._waiting_bytes + size_bytes > WAITING_BYTES_MAX
        if is_full or throttle_ms > WAIT_MS_MAX:
            raise _ThrottlingQuotaExceededError(
                f"the quota {key} is exceeded: send the request again in {throttle_ms} ms"
            )
        self._waiting += 1
        self._waiting_bytes += size_bytes
        try:
            await asyncio.sleep(throttle_ms / 1000)
        finally:
            self._waiting -= 1
            self._waiting_bytes -= size_bytes


class ThrottledCaller:
    """The caller of one call. The server awaits `wait_turn` before it handles the call. It charges the caller for the
    bytes of the call, and for each time that it works on the call."""

    __slots__ = ("_client_id", "_throttle", "_user")

    def __init__(self, throttle: CallThrottle, user: str, client_id: str) -> None:
        self._throttle = throttle
        self._user = user
        self._client_id = client_id

    async def wait_turn(self, bytes_key: str | None = None, size_bytes: int = 0) -> None:
        """Waits for the rest of the caller's throttle time: that of `request_percentage`, and that of the quota
        `bytes_key`. `size_bytes` is the size of the received request. Raises ThrottlingQuotaExceededError."""
        key, throttle_ms = REQUEST_PERCENTAGE, self._pause_for_time_ms()
        if bytes_key is not None:
            of_bytes_ms = self._throttle_ms(bytes_key)
            if of_bytes_ms > throttle_ms:
                key, throttle_ms = bytes_key, of_bytes_ms
        if throttle_ms:
            await self._throttle.wait(key, throttle_ms, size_bytes)

    def charge_bytes(self, bytes_key: str, size_bytes: int) -> int:
        """Charges the bytes. Returns how many milliseconds the caller must pause for them, or for the event loop's time
        that it used."""
        of_bytes_ms = self._charge(bytes_key, size_bytes)
        if of_bytes_ms:
            on_throttled(bytes_key, of_bytes_ms)
        return max(of_bytes_ms, self._pause_for_time_ms())

    def charge_time(self, seconds: float) -> None:
        """Charges `seconds` of the event loop's time."""
        self._charge(REQUEST_PERCENTAGE, seconds * 100)

    def _charge(self, key: str, amount: float) -> int:
        throttle = self._throttle
        return throttle.quotas.charge(key, self._user, self._client_id, amount, throttle.clock.monotonic_ms())

    def _pause_for_time_ms(self) -> int:
        """Returns how long the caller must pause for the event loop's time that it used, and counts the pause."""
        throttle_ms = min(self._throttle_ms(REQUEST_PERCENTAGE), self._throttle.quotas.span.window_ms)
        if throttle_ms:
            on_throttled(REQUEST_PERCENTAGE, throttle_ms)
        return throttle_ms

    def _throttle_ms(self, key: str) -> int:
        throttle = self._throttle
        return throttle.quotas.throttle_ms(key, self._user, self._client_id, throttle.clock.monotonic_ms())
