"""KLAMM_PRODUCE: the Produce of Klamm's own client, with the messages of its gRPC call in the frames of this protocol.

gRPC copies the records several times on their way. Here, they stay in the buffer that received them until they are
appended.
"""

from __future__ import annotations

from collections.abc import Sequence

from klamm import tracing
from klamm.errors import EXCEPTIONS, ErrorCode
from klamm.wire.v1.broker_pb2 import ProduceResponse
from klamm_broker.handlers.produce import Produce, Produced, ProduceHandler
from klamm_broker.handlers.turns import TURN_PARTITIONS_MAX, end_long_turn
from klamm_broker.kafka.api import ApiKey, Versions, api
from klamm_broker.kafka.net.connection import Answer
from klamm_broker.kafka.requests import Request
from klamm_broker.messages.nodes import BrokerNodes
from klamm_broker.messages.produce import decode, encode
from klamm_server.runtime.sliced_work import map_in_slices
from klamm_server.runtime.waiting import Waiting

_InvalidRequestError = EXCEPTIONS[ErrorCode.INVALID_REQUEST]


class FramedProduce:
    """Handles KLAMM_PRODUCE. `grpc_listener` is the name of the gRPC listener beside this Kafka listener, or empty.
    `request_timeout_ms` is the time-out of a request that names none."""

    def __init__(
        self, handler: ProduceHandler, nodes: BrokerNodes, grpc_listener: str, *, request_timeout_ms: int
    ) -> None:
        self._handler = handler
        self._nodes = nodes
        self._grpc_listener = grpc_listener
        self._request_timeout_ms = request_timeout_ms

    @api(ApiKey.KLAMM_PRODUCE, Versions(0, 0, flexible=1), rights_of="Broker/Produce", is_klamms=True)
    def produce(self, request: Request) -> Answer | Waiting[Answer]:
        """Returns the answer, or `Waiting` if the produce must wait. Raises InvalidRequestError if the message is not
        valid, and CallFailed if it has too many items."""
        message = request.frame[request.body_start :]
        produce, _ = decode(message, lambda: request.client_host, timeout_ms=self._request_timeout_ms)
        if any(partition.writer is not None for partition in produce.partitions):
            raise _InvalidRequestError("the request names a coordinator that writes; coordinators send them over gRPC")
        if tracing.is_on():
            return Waiting(self._traced(request, produce))
        if len(produce.partitions) > TURN_PARTITIONS_MAX:
            return Waiting(self._in_slices(request, produce))
        answers = self._handler.serve(produce)
        if isinstance(answers, Waiting):
            return Waiting(self._answer_async(request, answers))
        return self._answer(request, ProduceResponse(partitions=map(encode, answers)), answers)

    async def _traced(self, request: Request, produce: Produce) -> Answer:
        with tracing.request_span("Produce", request.client_id):
            return await self._in_slices(request, produce)

    async def _in_slices(self, request: Request, produce: Produce) -> Answer:
        await end_long_turn(produce.partitions)
        answers = self._handler.serve(produce)
        if isinstance(answers, Waiting):
            return await self._answer_async(request, answers)
        await end_long_turn(answers)
        return await self._encode_in_slices(request, answers)

    async def _answer_async(self, request: Request, answers: Waiting[list[Produced]]) -> Answer:
        return await self._encode_in_slices(request, await answers)

    async def _encode_in_slices(self, request: Request, answers: Sequence[Produced]) -> Answer:
        return self._answer(request, ProduceResponse(partitions=await map_in_slices(encode, answers)), answers)

    def _answer(self, request: Request, response: ProduceResponse, answers: Sequence[Produced]) -> Answer:
        response.node_endpoints.extend(self._nodes.leaders(answers, self._grpc_listener))
        response.throttle_time_ms = request.throttle_ms
        return [response.SerializeToString()]
