"""A connection to one of the controllers, and the choice of the next one after a failure."""

from __future__ import annotations

import asyncio
from typing import Any, Generic, Protocol, TypeVar

from klamm.errors import EXCEPTIONS, BrokerError, ErrorCode
from klamm.rpc.connection import Connection
from klamm.rpc.options import CONTROLLERS
from klamm.rpc.transport import Transport
from klamm.wire.calls import Unary
from klamm.wire.stubs import Service, Stub
from klamm.wire.v1.common_pb2 import Endpoint
from klamm_server.rpc.controllers import Address, Controllers

NotControllerError = EXCEPTIONS[ErrorCode.NOT_CONTROLLER]


class ControllerAnswer(Protocol):
    """The fields that all answers of controllers have."""

    @property
    def error_code(self) -> int: ...

    @property
    def controller(self) -> Endpoint:
        """The active controller, with NOT_CONTROLLER, if it is known."""


StubT = TypeVar("StubT", bound=Stub)
RequestT = TypeVar("RequestT")
AnswerT = TypeVar("AnswerT", bound=ControllerAnswer)


class ControllerChannel(Generic[StubT]):
    """A connection to the controller that is assumed to be active.

    After a failed call, the channel turns to another controller. Other calls under way at the former one continue: they
    have their own timeouts, and may have had an effect already. A redirection may name a controller that is not among
    `controllers`. It is dropped at the next failure."""

    def __init__(self, transport: Transport, controllers: Controllers, service: Service[StubT, Any]) -> None:
        self._transport = transport
        self._controllers = controllers
        self._service = service
        self._connection: Connection | None = None
        self._retiring: dict[Connection, asyncio.Task[None]] = {}
        """Former connections that still have calls under way, and the tasks that wait for their end."""
        self._asked = controllers.to_try[0]

    @property
    def address(self) -> str:
        """The host:port of the current controller."""
        return "{}:{}".format(*self._asked)

    def stub(self) -> StubT:
        """Returns the stub of the current controller. It connects at the first call."""
        if self._connection is None:
            self._connection = Connection(self._transport, self.address, CONTROLLERS)
        return self._connection.stub(self._service)

    async def ask(self, rpc: Unary[StubT, RequestT, AnswerT], request: RequestT, *, timeout_ms: int) -> AnswerT:
        """Makes one attempt. The answer may have any error except NOT_CONTROLLER.

        Raises the BrokerError of a failed call, or NotControllerError. The next attempt then goes to another
        controller, which is the same for all callers of the failed one."""
        asked = self._asked
        try:
            answer = await rpc(self.stub(), request, timeout_ms=timeout_ms)
        except BrokerError:
            if self._asked == asked:
                self.rotate()
            raise
        if answer.error_code == ErrorCode.NOT_CONTROLLER:
            if self._asked == asked:
                self.redirect(answer.controller)
            raise NotControllerError("{}:{} is not the active controller".format(*asked))
        return answer

    def rotate(self) -> None:
        """Turns to the next controller after a failure."""
        self._connect_to(self._controllers.following(self._asked))

    def redirect(self, controller: Endpoint) -> None:
        """Turns to the controller that NOT_CONTROLLER named, or to the next one if it named none."""
        if not controller.host:
            self.rotate()
        else:
            self._connect_to((controller.host, controller.port))

    async def close(self) -> None:
        """Ends the calls under way."""
        self._retire()
        for connection, retiring in list(self._retiring.items()):
            retiring.cancel()
            await connection.close()

    def _connect_to(self, address: Address) -> None:
        self._asked = address
        self._retire()

    def _retire(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            retiring = self._retiring[connection] = asyncio.create_task(connection.retire())
            retiring.add_done_callback(lambda _: self._retiring.pop(connection, None))
