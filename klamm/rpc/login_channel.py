"""A channel that logs in before its calls.

The first call logs in. A call also logs in after the answer UNAUTHENTICATED, because the connection is new or the
session has ended. Other calls wait for that login. The call is then repeated once, and again if the new session has
also expired meanwhile, for example on a busy machine. A stream is not repeated, because only its caller knows which
messages it has handled."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from klamm.client_task import client_task
from klamm.rpc.call_metadata import CALL_METADATA
from klamm.rpc.login import SaslSource, log_in
from klamm.rpc.status import CallFailed, Status
from klamm.rpc.transport import Channel, StreamCall, UnaryCall
from klamm.wire.service import Method

AUTHORIZATION: Final = "authorization"
LOGIN_TIMEOUT_MS: Final = 30_000
"""The time-out of a whole login. It does not depend on the time-out of the call that waits for it."""


class LoginChannel:
    """A `klamm.rpc.transport.Channel` over another one that has one connection at a time."""

    def __init__(self, channel: Channel, source: SaslSource) -> None:
        self._channel = channel
        self._sessions = _Sessions(channel, source)

    def unary(self, method: Method) -> Callable[[Any, int], UnaryCall]:
        begin = self._channel.unary(method)
        return lambda request, timeout_ms: asyncio.ensure_future(self._ask(begin, request, timeout_ms))

    def stream(self, method: Method) -> Callable[[Any, int | None], StreamCall]:
        begin = self._channel.stream(method)
        return lambda request, timeout_ms: _Stream(self._sessions, begin, request, timeout_ms)

    async def close(self) -> None:
        await self._sessions.close()
        await self._channel.close()

    async def _ask(self, begin: Callable[[Any, int], UnaryCall], request: Any, timeout_ms: int) -> Any:
        clock = asyncio.get_running_loop().time
        ends = clock() + timeout_ms / 1000
        say, used, is_repeated = CALL_METADATA.get(), None, False
        while True:
            used = await _within(self._sessions.session(refused=used), ends - clock())
            CALL_METADATA.set((*say, (AUTHORIZATION, used.authorization)))
            try:
                return await begin(request, _left_ms(ends - clock()))
            except CallFailed as failure:
                if failure.status is not Status.UNAUTHENTICATED or (is_repeated and clock() < used.ends_s):
                    raise
            is_repeated = True


class _Session(NamedTuple):
    authorization: str
    ends_s: float
    """The end of the session, in seconds of the event loop's clock. The server does not end it earlier."""


class _Sessions:
    """The newest session, and the login under way, if there is one."""

    def __init__(self, channel: Channel, source: SaslSource) -> None:
        self._channel = channel
        self._source = source
        self._newest: _Session | None = None
        self._login: asyncio.Task[_Session] | None = None

    async def session(self, refused: _Session | None = None) -> _Session:
        """Returns a session other than `refused`, after a login if necessary. Raises the CallFailed of a failed
        login.
        """
        self.forget(refused)
        if self._newest is not None:
            return self._newest
        if self._login is None:
            # The login is for all calls, so it does not inherit the context of the first one.
            self._login = client_task(self._log_in(), name="sasl-login", context=contextvars.Context())
            self._login.add_done_callback(_retrieve)
        return await asyncio.shield(self._login)

    def forget(self, refused: _Session | None) -> None:
        """Drops a session that the server does not accept. The next call logs in."""
        if self._newest == refused:
            self._newest = None

    async def close(self) -> None:
        """Cancels the login under way. Callers that wait for it get CancelledError."""
        login = self._login
        if login is not None:
            login.cancel()
            await asyncio.wait([login])

    async def _log_in(self) -> _Session:
        began_s = asyncio.get_running_loop().time()
        try:
            made = await log_in(self._channel, self._source, timeout_ms=LOGIN_TIMEOUT_MS)
            self._newest = _Session(made.authorization, began_s + made.lifetime_s)
        except TimeoutError:
            raise _late("the login") from None
        finally:
            self._login = None
        return self._newest


class _Stream:
    """A `StreamCall` that begins after the login."""

    def __init__(
        self,
        sessions: _Sessions,
        begin: Callable[[Any, int | None], StreamCall],
        request: Any,
        timeout_ms: int | None,
    ) -> None:
        self._sessions = sessions
        self._used: _Session | None = None
        self._call: StreamCall | None = None
        self._beginning = client_task(self._begin(begin, request, timeout_ms), name="sasl-stream")
        self._beginning.add_done_callback(_retrieve)

    async def write(self, request: Any) -> None:
        await self._with_login((await self._begun()).write, request)

    async def read(self) -> Any:
        return await self._with_login((await self._begun()).read)

    def done(self) -> bool:
        return self._beginning.done() if self._call is None else self._call.done()

    def add_done_callback(self, function: Callable[[Any], None]) -> None:
        def begun(_: object) -> None:
            if self._call is None:
                function(self)
            else:
                self._call.add_done_callback(function)

        self._beginning.add_done_callback(begun)

    def cancel(self) -> object:
        return self._beginning.cancel() if self._call is None else self._call.cancel()

    async def _begin(
        self, begin: Callable[[Any, int | None], StreamCall], request: Any, timeout_ms: int | None
    ) -> StreamCall:
        self._used = await _within(self._sessions.session(), None if timeout_ms is None else timeout_ms / 1000)
        CALL_METADATA.set((*CALL_METADATA.get(), (AUTHORIZATION, self._used.authorization)))
        self._call = begin(request, timeout_ms)
        return self._call

    async def _begun(self) -> StreamCall:
        return await asyncio.shield(self._beginning)

    async def _with_login(self, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return await function(*arguments)
        except CallFailed as failure:
            if failure.status is Status.UNAUTHENTICATED:
                self._sessions.forget(self._used)
            raise


async def _within(session: Awaitable[_Session], left_s: float | None) -> _Session:
    try:
        async with asyncio.timeout(left_s):
            return await session
    except TimeoutError:
        raise _late("waiting for the login") from None


def _late(what: str) -> CallFailed:
    return CallFailed(Status.DEADLINE_EXCEEDED, f"{what} took too long")


def _left_ms(left_s: float) -> int:
    return max(1, round(1000 * left_s))


def _retrieve(task: asyncio.Task[Any]) -> None:
    """Reads the task's exception, because there may be no caller left that waits for it."""
    if not task.cancelled():
        task.exception()
