"""Calls to the active controller that are repeated until they succeed, one attempt at a time, with pauses."""

from __future__ import annotations

import random
from typing import TypeVar

from klamm.errors import BrokerError, ErrorCode
from klamm.retry import Backoff
from klamm.rpc.transport import Transport
from klamm.wire.calls import Unary
from klamm.wire.v1.controller_rpc import CONTROLLER, ControllerStub
from klamm_server.rpc.controller_channel import ControllerAnswer, ControllerChannel
from klamm_server.rpc.controllers import Controllers
from klamm_server.rpc.retries import ServerRetries

RequestT = TypeVar("RequestT")
AnswerT = TypeVar("AnswerT", bound=ControllerAnswer)

RETRY = Backoff(initial_ms=50, max_ms=1_000)


class ControllerCalls:
    """Makes calls to the active controller, and remembers which controller to try. The owner must call `close`."""

    def __init__(self, transport: Transport, controllers: Controllers, *, timeout_ms: int, rng: random.Random) -> None:
        self._channel = ControllerChannel(transport, controllers, CONTROLLER)
        self._timeout_ms = timeout_ms
        self._retries = ServerRetries("call to the controller", "", RETRY, rng)

    async def attempt(self, rpc: Unary[ControllerStub, RequestT, AnswerT], request: RequestT) -> AnswerT | None:
        """Sends a request once. Returns the answer, or None if the call failed or the answer has an error code.

        After None, the caller does not know whether the request had an effect. Before it returns None, this method
        pauses, and the next attempt may go to another controller."""
        try:
            answer = await self._channel.ask(rpc, request, timeout_ms=self._timeout_ms)
        except BrokerError as error:
            await self.pause(f"{rpc.__name__} {error}")
            return None
        if answer.error_code:
            await self.pause(f"{rpc.__name__} refused: {ErrorCode.of(answer.error_code).name}")
            return None
        self._retries.reset()
        return answer

    async def close(self) -> None:
        await self._channel.close()

    async def pause(self, why: str) -> None:
        """Waits before the next attempt. The pause grows with every failure in a row."""
        await self._retries.pause(why)
