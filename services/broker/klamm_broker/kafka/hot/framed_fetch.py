"""KLAMM_FETCH: the Fetch of Klamm's own client, with the messages of its gRPC call in the frames of this protocol.

The kernel sends the records of closed segments from the page cache, as for other Kafka clients. gRPC would copy them.
"""

from __future__ import annotations

from collections.abc import Sequence

from google.protobuf.message import DecodeError

from klamm.wire.framed import framed_start
from klamm.wire.v1.broker_pb2 import FetchedPartition, FetchHeader, FetchRequest
from klamm_broker.handlers.fetch import FetchHandler, FetchQuery
from klamm_broker.handlers.turns import TURN_PARTITIONS_MAX, end_long_turn
from klamm_broker.io.record_file import RecordFile, close_files
from klamm_broker.io.record_reader import Copy
from klamm_broker.kafka.api import ApiKey, Versions, api
from klamm_broker.kafka.codec.wire import MalformedRequestError
from klamm_broker.kafka.net.connection import Answer
from klamm_broker.kafka.requests import Request
from klamm_broker.messages.fetch import ANY_SIZE, decode, encode
from klamm_broker.messages.nodes import BrokerNodes
from klamm_broker.replica.fetch_reader import LocatedFetch
from klamm_server.rpc.absent_fields import given
from klamm_server.rpc.item_limits import check_items
from klamm_server.runtime.sliced_work import map_in_slices
from klamm_server.runtime.waiting import Waiting

Records = Sequence[Copy | RecordFile]


class FramedFetch:
    """Handles KLAMM_FETCH. `grpc_listener` is the name of the gRPC listener beside this Kafka listener, or empty."""

    def __init__(self, handler: FetchHandler, nodes: BrokerNodes, grpc_listener: str) -> None:
        self._handler = handler
        self._nodes = nodes
        self._grpc_listener = grpc_listener

    @api(ApiKey.KLAMM_FETCH, Versions(0, 0, flexible=1), rights_of="Broker/Fetch", is_klamms=True)
    def fetch(self, request: Request) -> Answer | Waiting[Answer]:
        """Returns the answer, or `Waiting` if the fetch must wait. Raises MalformedRequestError or
        InvalidRequestError if the message is not valid, and CallFailed if it has too many items."""
        try:
            message = FetchRequest.FromString(request.frame[request.body_start :].tobytes())
        except DecodeError as error:
            raise MalformedRequestError(f"FetchRequest does not parse: {error}") from error
        check_items(message)
        limit = given(message, "max_bytes", ANY_SIZE)
        if request.throttle is not None:
            limit = request.throttle.fetch_max_bytes(limit)
        query = decode(message, lambda: request.client_host, limit, rack=message.rack_id)
        if len(message.partitions) > TURN_PARTITIONS_MAX:
            return Waiting(self._fetch_many(request, query))
        found, records = self._handler.begin(query)
        if records is None:
            return Waiting(self._finish(request, query, found))
        return self._answer(request, found, records, list(map(encode, found.answers)))

    async def _fetch_many(self, request: Request, query: FetchQuery) -> Answer:
        await end_long_turn(query.cursors)
        found, records = self._handler.begin(query)
        if records is None:
            return await self._finish(request, query, found)
        return self._answer(request, found, records, await map_in_slices(encode, found.answers))

    async def _finish(self, request: Request, query: FetchQuery, begun: LocatedFetch) -> Answer:
        found, records = await self._handler.finish(query, begun)
        try:
            return self._answer(request, found, records, await map_in_slices(encode, found.answers))
        except BaseException:
            close_files(records)
            raise

    def _answer(
        self, request: Request, found: LocatedFetch, records: Records, answers: Sequence[FetchedPartition]
    ) -> Answer:
        if request.throttle is not None and not request.throttle.charge_fetch(found.size_bytes):
            close_files(records)
            return [framed_start(FetchHeader(throttle_time_ms=request.throttle_ms), 0)]
        nodes = self._nodes.leaders(found.answers, self._grpc_listener) if found.errors else ()
        header = FetchHeader(partitions=answers, node_endpoints=nodes, throttle_time_ms=request.throttle_ms)
        return [framed_start(header, found.size_bytes), *records]
