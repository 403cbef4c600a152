"""A connection to one of the controllers, and which one to try after it."""

from __future__ import annotations

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
    """What answers of controllers have in common."""

    @property
    def error_code(self) -> int: ...

    @property
    def controller(self) -> Endpoint:
        """The active controller, with NOT_CONTROLLER, if it is known."""


StubT = TypeVar("StubT", bound=Stub)
RequestT = TypeVar("RequestT")
AnswerT = TypeVar("AnswerT", bound=ControllerAnswer)


class ControllerChannel(Generic[StubT]):
    """One connection at a time, to the controller that is believed to be the right one.

    A redirection may name one that is not among `controllers`; it is forgotten at the next failure."""

    def __init__(self, transport: Transport, controllers: Controllers, service: Service[StubT, Any]) -> None:
        self._transport = transport
        self._controllers = controllers
        self._service = service
        self._connection: Connection | None = None
        self._asked = controllers.to_try[0]

    @property
    def address(self) -> str:
        """host:port that `stub` talks to."""
        return "{}:{}".format(*self._asked)

    def stub(self) -> StubT:
        """The service at the current controller; connects lazily."""
        if self._connection is None:
            self._connection = Connection(self._transport, self.address, CONTROLLERS)
        return self._connection.stub(self._service)

    async def ask(self, rpc: Unary[StubT, RequestT, AnswerT], request: RequestT, *, timeout_ms: int) -> AnswerT:
        """One attempt. Its answer may be any error but NOT_CONTROLLER.

        Raises the BrokerError of a call that failed, or NotControllerError; the next attempt goes to another controller
        then, to the same one for all who asked this one."""
        asked = self._asked
        try:
            answer = await rpc(self.stub(), request, timeout_ms=timeout_ms)
        except BrokerError:
            if self._asked == asked:
                await self.rotate()
            raise
        if answer.error_code == ErrorCode.NOT_CONTROLLER:
            if self._asked == asked:
                await self.redirect(answer.controller)
            raise NotControllerError("{}:{} is not the active controller".format(*asked))
        return answer

    async def rotate(self) -> None:
        """Turns to the next controller, after a failure."""
        await self._switch_to(self._controllers.following(self._asked))

    async def redirect(self, controller: Endpoint) -> None:
        """Turns to the controller that NOT_CONTROLLER named; without a name, to the next one."""
        if not controller.host:
            await self.rotate()
        else:
            await self._switch_to((controller.host, controller.port))

    async def close(self) -> None:
        """Ends the calls under way."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _switch_to(self, address: Address) -> None:
        self._asked = address
        await self.close()
