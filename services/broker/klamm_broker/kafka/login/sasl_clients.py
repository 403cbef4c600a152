"""The clients of a listener with logins, before and after their login.

Until a client has logged in, its connection uses one of a limited number of places (`HandshakeLimit`). It has a time
limit from the accept on, and its frames must be small. Only requests of a login are answered.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

from klamm.errors import ErrorCode
from klamm_broker.io.metrics import EXPIRED_CONNECTIONS
from klamm_broker.kafka.api import ApiKey
from klamm_broker.kafka.login.sasl_messages import (
    auth_bytes,
    authenticate_answer,
    handshake_answer,
    requested_mechanism,
)
from klamm_broker.kafka.net.connection import Answer, KafkaConnection, Parts
from klamm_broker.kafka.net.handshake_limit import HandshakeLimit
from klamm_broker.kafka.requests import Request
from klamm_server.net.wrong_protocol import WrongProtocolLog
from klamm_server.runtime.clock import Clock
from klamm_server.runtime.waiting import Waiting
from klamm_server.security.logins.login import Login
from klamm_server.security.logins.logins import ListenerLogins
from klamm_server.security.sasl.sasl_authenticator import LoginInterruptedError, SaslStateError, SessionExpiredError

log = logging.getLogger(__name__)

_Handler = Callable[[Request], Coroutine[Any, Any, Answer]]

_LOGIN_APIS: Final = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})


class SaslClients:
    """The clients of one listener. `limit` has the places of clients that have not logged in, for all listeners
    together."""

    def __init__(self, logins: ListenerLogins, limit: HandshakeLimit, clock: Clock) -> None:
        self.logins = logins
        self.limit = limit
        self.clock = clock
        self.timeout_ms = logins.settings.authentication_timeout_ms
        self._wrong_protocols = WrongProtocolLog(log, f"the Kafka listener {logins.listener}", clock.monotonic_ms)

    def expect(self, connection: KafkaConnection) -> None:
        """Gives a newly accepted connection its login, and limits the size of its frames."""
        connection.login = ClientLogin(self, connection)
        connection.request_max_bytes = self.logins.settings.sasl_server_max_receive_size

    def give_up(self, connection: KafkaConnection, why: str) -> None:
        """Closes a connection whose login took too long."""
        self._wrong_protocols.report_refused("a login", connection.peer, why)
        connection.close()


class ClientLogin:
    """The login of one connection. The connection calls `begin` when it is established and `close` when it has
    ended."""

    def __init__(self, clients: SaslClients, connection: KafkaConnection) -> None:
        self._clients = clients
        self._connection = connection
        self._request_max_bytes = connection.request_max_bytes
        self._login: Login | None = None
        self._has_place = False
        self._ends: asyncio.TimerHandle | None = None
        self._end_s = asyncio.get_running_loop().time() + clients.timeout_ms / 1000

    @property
    def is_done(self) -> bool:
        """True after the first login, also during another one."""
        return self._login is not None and self._login.authenticator.user is not None

    def mute(self, throttle_ms: int) -> None:
        """Delays the start of the login's time limit by `throttle_ms`. Called before `begin`."""
        self._end_s += throttle_ms / 1000

    def begin(self, *, has_place: bool) -> str:
        """Takes a place unless the connection `has_place`. Returns the reached limit if there is none, otherwise ""."""
        connection, clients = self._connection, self._clients
        if not has_place and (reached := clients.limit.take(connection.peer)):
            return reached
        self._has_place = True
        self._login = Login(clients.logins, connection.peer, connection.cut_off)
        self._count_time()
        return ""

    def close(self) -> None:
        """Ends the login, because the connection is closed."""
        self._leave()
        if self._login is not None:
            self._login.close()

    def handler_of(self, request: Request) -> Callable[[Request], Waiting[Answer]] | None:
        """Returns the handler of a request that is part of a login, or None for all other requests.

        Raises SaslStateError, which ends the connection."""
        handler = self._handler_or_refusal(request)
        return None if handler is None else lambda request: Waiting(handler(request))

    def _handler_or_refusal(self, request: Request) -> _Handler | None:
        try:
            return self._handler_of(request)
        except SessionExpiredError:
            EXPIRED_CONNECTIONS.inc()
            raise
        except SaslStateError as error:
            self._break_off(str(error))
            if isinstance(error, LoginInterruptedError):
                return functools.partial(self._interrupted, error)
            raise

    def _handler_of(self, request: Request) -> _Handler | None:
        assert self._login is not None, "a connection begins before its requests"
        authenticator, now_ms = self._login.authenticator, self._clients.clock.wall_ms()
        match request.api_key:
            case ApiKey.SASL_HANDSHAKE:
                # As in Kafka, the client gets ILLEGAL_SASL_STATE if it may not log in now, and its session continues.
                return self._handshake if authenticator.may_begin(now_ms) else None
            case ApiKey.SASL_AUTHENTICATE if not authenticator.is_complete:
                return self._authenticate
            case ApiKey.API_VERSIONS:
                authenticator.api_versions(now_ms)
            case api_key:
                authenticator.other(api_key.name, now_ms)
        return None

    async def _handshake(self, request: Request) -> Answer:
        assert self._login is not None
        try:
            reply = self._login.handshake(requested_mechanism(request))
        except LoginInterruptedError as error:
            return await self._interrupted(error, request)
        if reply.code is not ErrorCode.NONE:
            self._connection.end_after_answer()
        return handshake_answer(reply.code, reply.mechanisms)

    async def _authenticate(self, request: Request) -> Answer:
        assert self._login is not None
        data = auth_bytes(request)
        if len(data) > self._clients.logins.settings.sasl_server_max_receive_size:
            error = f"a login message has {len(data)} bytes, which is more than sasl.server.max.receive.size"
            self._break_off(error)
            raise SaslStateError(error)
        # The time of a check or of a delay after a failure is bounded, and does not count against the client.
        self._stop_time()
        reply = await self._login.authenticate(data)
        if reply.code is not ErrorCode.NONE:
            self._connection.end_after_answer()
        elif self._login.authenticator.is_complete:
            self._complete()
        elif self._has_place:
            self._count_time()
        return authenticate_answer(request.version, reply)

    async def _interrupted(self, error: LoginInterruptedError, request: Request) -> Answer:
        """Answers a request that interrupts the login. Raises the error if its API has no answer for that."""
        interrupted_answer = await asyncio.to_thread(_interrupted_answer)
        answer = interrupted_answer(request)
        if answer is None:
            raise error
        log.warning("client=%s login failed: %s", self._connection.peer, error)
        self._connection.end_after_answer()
        return answer

    def _complete(self) -> None:
        assert self._login is not None
        self._leave()
        self._connection.principal = f"User:{self._login.authenticator.user}"
        self._connection.request_max_bytes = self._request_max_bytes

    def _count_time(self) -> None:
        self._ends = asyncio.get_running_loop().call_at(self._end_s, self._time_out)

    def _time_out(self) -> None:
        why = f"the login took longer than authentication.timeout.ms={self._clients.timeout_ms}"
        self._break_off(why)
        self._clients.give_up(self._connection, why)

    def _break_off(self, cause: str) -> None:
        assert self._login is not None
        self._login.break_off(cause)

    def _stop_time(self) -> None:
        if self._ends is not None:
            self._ends.cancel()

    def _leave(self) -> None:
        """Gives the connection's place back and stops its timer."""
        self._stop_time()
        if self._has_place:
            self._has_place = False
            self._clients.limit.give_back(self._connection.peer)


def _interrupted_answer() -> Callable[[Request], Parts | None]:
    """Imports the module with all schemas of messages late, because a start of a broker does not need them."""
    from klamm_broker.kafka.login.login_interrupted import interrupted_answer

    return interrupted_answer
