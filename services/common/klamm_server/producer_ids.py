"""Producer ids for a broker or a coordinator to give out: blocks of them from the active controller.

Kafka's `RPCProducerIdManager`. A block that this process does not use up is lost; there are 2^63 ids.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import grpc

from klamm.errors import EXCEPTIONS, ErrorCode
from klamm.wire.service import CONTROLLER
from klamm.wire.v1.controller_pb2 import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from klamm_server.controller_channel import ControllerChannel
from klamm_server.controllers import Controllers

log = logging.getLogger(__name__)

_NoIdsError = EXCEPTIONS[ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]


class ProducerIds:
    """`next` gives ids one by one, `next_block` many; `close` ends the connection. Event loop only."""

    def __init__(
        self,
        controllers: Controllers,
        make_request: Callable[[], AllocateProducerIdsRequest],
        *,
        timeout_ms: int,
    ) -> None:
        """`make_request` says who asks, by its newest registration."""
        self._controllers = controllers
        self._channel = ControllerChannel(controllers, CONTROLLER)
        self._make_request = make_request
        self._timeout_ms = timeout_ms
        self._block = iter(range(0))
        self._allocating = asyncio.Lock()

    async def next(self) -> int:
        """An id that nobody else ever gets.

        Raises CoordinatorLoadInProgressError when no controller gives out any."""
        async with self._allocating:
            producer_id = next(self._block, None)
            if producer_id is None:
                self._block = iter(await self._allocate())
                producer_id = next(self._block)
            return producer_id

    async def next_block(self) -> range:
        """Ids that nobody else ever gets. Raises as `next`."""
        async with self._allocating:
            return await self._allocate()

    async def close(self) -> None:
        await self._channel.close()

    async def _allocate(self) -> range:
        """Asks each controller once, and one more if the last of them points at another."""
        why = ""
        for _ in range(len(self._controllers.to_try) + 1):
            try:
                stub = self._channel.stub()
                response: AllocateProducerIdsResponse = await stub.allocate_producer_ids(
                    self._make_request(), timeout=self._timeout_ms / 1000
                )
            except grpc.RpcError as error:
                why = f"{self._channel.address}: {error.code().name} {error.details()}"
                await self._channel.rotate()
                continue
            if response.error_code == ErrorCode.NONE:
                first, count = response.first_producer_id, response.count
                log.info("producer ids allocated first=%d count=%d", first, count)
                return range(first, first + count)
            why = f"{self._channel.address}: {ErrorCode.of(response.error_code).name} {response.error_message}"
            if response.error_code != ErrorCode.NOT_CONTROLLER:
                break
            await self._channel.redirect(response.controller)
        raise _NoIdsError(f"no controller gave out producer ids: {why}")
