"""Produce and ProduceStream over gRPC: the messages, and the memory that they hold."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from klamm.errors import BrokerError
from klamm.quotas import PRODUCER_BYTE_RATE
from klamm.wire.calls import CallContext
from klamm.wire.v1.broker_pb2 import ProduceResponse
from klamm_broker.grpc.client_hosts import client_host
from klamm_broker.handlers.produce import Produce, Produced, ProduceHandler
from klamm_broker.handlers.turns import end_long_turn
from klamm_broker.io.request_memory import RequestMemory
from klamm_broker.messages.nodes import BrokerNodes
from klamm_broker.messages.produce import decode, encode
from klamm_server.rpc.call_throttle import CallThrottle, ThrottledCaller
from klamm_server.runtime.charged import charged
from klamm_server.runtime.sliced_work import map_in_slices
from klamm_server.runtime.waiting import Waiting


class ProduceRpc:
    """Handles Produce and ProduceStream.

    A message that is no valid produce request is refused as a whole: wrong framing, sizes that do not add up, or a
    partition that is named twice. `request_timeout_ms` is the time-out of a request that names none."""

    def __init__(
        self,
        handler: ProduceHandler,
        nodes: BrokerNodes,
        memory: RequestMemory,
        throttle: CallThrottle,
        *,
        request_timeout_ms: int,
    ) -> None:
        self._handler = handler
        self._throttle = throttle
        self._nodes = nodes
        self._memory = memory
        self._request_timeout_ms = request_timeout_ms

    async def produce(self, request: bytes, context: CallContext) -> ProduceResponse:
        produce, client_id = decode(request, client_host(context), timeout_ms=self._request_timeout_ms)
        caller = self._caller(produce, client_id)
        try:
            if caller is not None:
                await caller.wait_turn(PRODUCER_BYTE_RATE, len(request))
            self._memory.take(len(request))
        except BrokerError as error:
            return await self._response(self._handler.refuse(produce, error))
        try:
            return await self._respond(produce, caller, len(request))
        finally:
            self._memory.give_back(len(request))

    async def produce_stream(
        self, requests: AsyncIterator[bytes], context: CallContext
    ) -> AsyncIterator[ProduceResponse]:
        """Answers each request before it reads the next one. This is the stream's back-pressure."""
        async for request in requests:
            produce, client_id = decode(request, client_host(context), timeout_ms=self._request_timeout_ms)
            await self._memory.wait_take(len(request))
            try:
                response = await self._respond(produce, self._caller(produce, client_id), len(request))
            finally:
                self._memory.give_back(len(request))
            yield response
            if response.throttle_time_ms:
                await asyncio.sleep(response.throttle_time_ms / 1000)

    def _caller(self, produce: Produce, client_id: str) -> ThrottledCaller | None:
        return self._throttle.caller_about(
            (partition.topic_partition.topic for partition in produce.partitions), client_id
        )

    async def _respond(self, produce: Produce, caller: ThrottledCaller | None, size_bytes: int) -> ProduceResponse:
        """Returns the response to a request of `size_bytes`, and charges the caller for it."""
        if caller is None:
            return await self._served(produce)
        response = await charged(self._served(produce), caller.charge_time)
        response.throttle_time_ms = caller.charge_bytes(PRODUCER_BYTE_RATE, size_bytes)
        return response

    async def _served(self, produce: Produce) -> ProduceResponse:
        await end_long_turn(produce.partitions)
        answers = self._handler.serve(produce)
        if isinstance(answers, Waiting):
            answers = await answers
        await end_long_turn(answers)
        return await self._response(answers)

    async def _response(self, answers: Sequence[Produced]) -> ProduceResponse:
        return ProduceResponse(
            partitions=await map_in_slices(encode, answers),
            node_endpoints=self._nodes.leaders(answers),
        )
