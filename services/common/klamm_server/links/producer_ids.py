"""Gets blocks of producer ids from the active controller, for a broker or a coordinator to give out.

Kafka's `RPCProducerIdManager`. A block that this process does not use up is lost; there are 2^63 ids."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from klamm.errors import EXCEPTIONS, BrokerError, ErrorCode
from klamm.rpc.transport import Transport
from klamm.wire.v1.controller_pb2 import AllocateProducerIdsRequest
from klamm.wire.v1.controller_rpc import CONTROLLER, ControllerStub
from klamm_server.rpc.controller_channel import ControllerChannel
from klamm_server.rpc.controllers import Controllers

log = logging.getLogger(__name__)

_NoIdsError = EXCEPTIONS[ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]


class ProducerIds:
    """Gives out producer ids, with `next` one by one or with `next_block` many. Use it on the event loop only. `close`
    ends its connection."""

    def __init__(
        self,
        transport: Transport,
        controllers: Controllers,
        make_request: Callable[[], AllocateProducerIdsRequest],
        *,
        timeout_ms: int,
    ) -> None:
        """Sends requests of `make_request`, which has the server's newest registration."""
        self._controllers = controllers
        self._channel = ControllerChannel(transport, controllers, CONTROLLER)
        self._make_request = make_request
        self._timeout_ms = timeout_ms
        self._block = iter(range(0))
        self._allocating = asyncio.Lock()

    async def next(self) -> int:
        """Returns an id that was never given out before.

        Raises CoordinatorLoadInProgressError if no controller gives out ids now."""
        async with self._allocating:
            producer_id = next(self._block, None)
            if producer_id is None:
                self._block = iter(await self._allocate())
                producer_id = next(self._block)
            return producer_id

    async def next_block(self) -> range:
        """Returns a block of ids that were never given out before. Raises the errors of `next`."""
        async with self._allocating:
            return await self._allocate()

    async def close(self) -> None:
        await self._channel.close()

    async def _allocate(self) -> range:
        """Asks each controller once. If the last one names another controller, asks that one too."""
        why = ""
        for _ in range(len(self._controllers.to_try) + 1):
            try:
                response = await self._channel.ask(
                    ControllerStub.allocate_producer_ids, self._make_request(), timeout_ms=self._timeout_ms
                )
            except BrokerError as error:
                why = str(error)
                continue
            if response.error_code == ErrorCode.NONE:
                first, count = response.first_producer_id, response.count
                log.info("allocated producer ids, first=%d count=%d", first, count)
                return range(first, first + count)
            why = f"{self._channel.address}: {ErrorCode.of(response.error_code).name} {response.error_message}"
            break
        raise _NoIdsError(f"could not get producer ids from the controller: {why}")
