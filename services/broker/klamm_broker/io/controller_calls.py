"""Calls to the active controller that must get through some day: one attempt at a time, with pauses between."""

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
    """Knows which controller to try; `close` it."""

    def __init__(self, transport: Transport, controllers: Controllers, *, timeout_ms: int) -> None:
        self._channel = ControllerChannel(transport, controllers, CONTROLLER)
        self._timeout_ms = timeout_ms
        self._retries = ServerRetries("call to the controller", "", RETRY, random.Random())

    async def attempt(self, rpc: Unary[ControllerStub, RequestT, AnswerT], request: RequestT) -> AnswerT | None:
        """The answer of a request that as a whole succeeded, or None: then nobody knows whether it had an effect.

        Before it returns None it turns to another controller where that may help, and waits a while."""
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
        """Waits before the next attempt at what just failed; longer with every failure in a row."""
        await self._retries.pause(why)
