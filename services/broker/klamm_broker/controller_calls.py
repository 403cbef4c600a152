"""Calls to the active controller that must get through some day: one attempt at a time, with pauses between."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Any

import grpc

from klamm.errors import ErrorCode
from klamm.retry import Backoff
from klamm.wire.service import CONTROLLER
from klamm_server.controller_channel import ControllerChannel
from klamm_server.controllers import Controllers

log = logging.getLogger(__name__)

RETRY = Backoff(initial_ms=50, max_ms=1_000)


class ControllerCalls:
    """Knows which controller to try; `close` it."""

    def __init__(self, controllers: Controllers, *, timeout_ms: int) -> None:
        self._channel = ControllerChannel(controllers, CONTROLLER)
        self._timeout_ms = timeout_ms
        self._rng = random.Random()
        self._failures = 0

    async def attempt(self, rpc: str, request: object) -> Any:
        """The answer of a request that as a whole succeeded, or None: then nobody knows whether it had an effect.

        Before it returns None it turns to another controller where that may help, and waits a while."""
        try:
            response = await getattr(self._channel.stub(), rpc)(request, timeout=self._timeout_ms / 1000)
        except grpc.RpcError as error:
            log.warning("rpc=%s controller=%s failed: %s", rpc, self._channel.address, error.code().name)
            await self._channel.rotate()
            await self.pause()
            return None
        code = ErrorCode.of(response.error_code)
        if code is ErrorCode.NONE:
            self._failures = 0
            return response
        if code is ErrorCode.NOT_CONTROLLER:
            await self._channel.redirect(response.controller)
        else:
            log.warning("rpc=%s refused: %s %s", rpc, code.name, response.error_message)
        await self.pause()
        return None

    async def close(self) -> None:
        await self._channel.close()

    async def pause(self) -> None:
        """Before the next attempt at what just failed; longer with every failure in a row."""
        # grpc.aio turns a cancellation that meets the end of the call into a status.
        if (task := asyncio.current_task()) is not None and task.cancelling():
            raise asyncio.CancelledError
        self._failures += 1
        await asyncio.sleep(RETRY.delay_ms(self._failures, self._rng) / 1000)
