"""Fetch and FetchStream over gRPC.

On a stream, the next read begins when gRPC has sent the previous answer. So a slow reader holds one message of at most
`STREAM_MESSAGE_BYTES_MAX`, not a queue. The stream sends no messages without records or changes.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterator, Sequence
from typing import Any, Final, TypeVar

from klamm.model import NO_LEADER_EPOCH
from klamm.quotas import CONSUMER_BYTE_RATE
from klamm.records.header import LENGTH_OVERHEAD_BYTES, Buffer, read_header
from klamm.wire.calls import CallContext
from klamm.wire.framed import encode_framed
from klamm.wire.v1.broker_pb2 import FetchHeader, FetchRequest
from klamm_broker.grpc.client_hosts import client_host
from klamm_broker.handlers.fetch import FetchHandler
from klamm_broker.handlers.turns import end_long_turn
from klamm_broker.io.request_memory import RequestMemory
from klamm_broker.messages.fetch import ANY_SIZE, decode, encode
from klamm_broker.messages.nodes import BrokerNodes
from klamm_broker.replica.fetch_reader import FetchCursor, LocatedFetch, PartitionAnswer
from klamm_server.rpc.absent_fields import given
from klamm_server.rpc.call_throttle import CallThrottle, ThrottledCaller
from klamm_server.runtime.charged import charged
from klamm_server.runtime.event_queue import QueueFullError
from klamm_server.runtime.sliced_work import map_in_slices

T = TypeVar("T")

STREAM_MESSAGE_BYTES_MAX: Final = 1024**2
"""The most record bytes in one message. Above this size, gRPC's cost per message no longer matters, and larger messages
only hold memory."""

STREAMS_PER_CONNECTION_MAX: Final = 1_000
"""The most fetch streams of one connection. Otherwise, one client could keep the event loop busy when all its streams
wake up."""

_LENGTH = struct.Struct(">i")
_LENGTH_POSITION = 8


class FetchRpc:
    """Handles Fetch and FetchStream."""

    def __init__(
        self, handler: FetchHandler, nodes: BrokerNodes, memory: RequestMemory, throttle: CallThrottle
    ) -> None:
        self._handler = handler
        self._throttle = throttle
        self._nodes = nodes
        self._memory = memory
        self._streams: Counter[str] = Counter()
        """The number of open streams of each connection, by its address."""

    async def fetch(self, request: FetchRequest, context: CallContext) -> bytes:
        query = decode(request, client_host(context), given(request, "max_bytes", ANY_SIZE), rack=request.rack_id)
        caller = self._caller(request)
        if caller is not None:
            await caller.wait_turn(CONSUMER_BYTE_RATE)
        await end_long_turn(query.cursors)
        found, records = await _charged(self._handler.fetch(query), caller)
        await end_long_turn(found.answers)
        self._memory.take_anyway(found.size_bytes)
        context.add_done_callback(lambda _: self._memory.give_back(found.size_bytes))
        return encode_framed(await self._header(found, found.answers, caller), records)

    async def fetch_stream(self, request: FetchRequest, context: CallContext) -> AsyncIterator[bytes]:
        with self._place(context.peer()):
            async with contextlib.aclosing(self._stream(request, context)) as messages:
                async for message in messages:
                    yield message

    @contextlib.contextmanager
    def _place(self, peer: str) -> Iterator[None]:
        """Counts a stream of the connection from `peer`. Raises QueueFullError if the connection has too many."""
        if self._streams[peer] >= STREAMS_PER_CONNECTION_MAX:
            raise QueueFullError(
                f"the connection has {STREAMS_PER_CONNECTION_MAX} fetch streams, which is the most: close one of them"
            )
        self._streams[peer] += 1
        try:
            yield
        finally:
            self._streams[peer] -= 1
            if not self._streams[peer]:
                del self._streams[peer]

    async def _stream(self, request: FetchRequest, context: CallContext) -> AsyncGenerator[bytes, None]:
        max_bytes = min(given(request, "max_bytes", ANY_SIZE), STREAM_MESSAGE_BYTES_MAX)
        query = decode(request, client_host(context), max_bytes)
        while query.cursors:
            caller = self._caller(request)
            await end_long_turn(query.cursors)
            found, records = await _charged(self._handler.next(query), caller)
            await end_long_turn(found.answers)
            answers = [answer for answer in found.answers if answer.records_bytes or _ends_reading(answer)]
            header = await self._header(found, answers, caller)
            message = encode_framed(header, records)
            query.cursors = _advanced(query.cursors, found, records)
            self._memory.take_anyway(found.size_bytes)
            try:
                yield message
            finally:
                self._memory.give_back(found.size_bytes)
            if header.throttle_time_ms:
                await asyncio.sleep(header.throttle_time_ms / 1000)

    def _caller(self, request: FetchRequest) -> ThrottledCaller | None:
        return self._throttle.caller_about((partition.topic for partition in request.partitions), request.client_id)

    async def _header(
        self, found: LocatedFetch, answers: Sequence[PartitionAnswer], caller: ThrottledCaller | None
    ) -> FetchHeader:
        """Returns the header of an answer, and charges the caller for its records."""
        nodes = self._nodes.leaders(answers) if found.errors else ()
        header = FetchHeader(partitions=await map_in_slices(encode, answers), node_endpoints=nodes)
        if caller is not None:
            header.throttle_time_ms = caller.charge_bytes(CONSUMER_BYTE_RATE, found.size_bytes)
        return header


async def _charged(work: Coroutine[Any, Any, T], caller: ThrottledCaller | None) -> T:
    return await (work if caller is None else charged(work, caller.charge_time))


def _advanced(cursors: Sequence[FetchCursor], found: LocatedFetch, records: Sequence[Buffer]) -> list[FetchCursor]:
    """Returns the cursors for the next read: failed partitions are removed, and partitions with records come last.

    Otherwise full partitions at the front would keep the others from being read."""
    parts = iter(records)
    waiting, served = [], []
    for cursor, answer in zip(cursors, found.answers, strict=True):
        if _ends_reading(answer):
            continue
        if answer.records_bytes:
            cursor.offset = next_offset(next(parts))
            # From here on, this leader's log is read, or the leader epoch is refused.
            cursor.last_fetched_epoch = NO_LEADER_EPOCH
            served.append(cursor)
        else:
            waiting.append(cursor)
    return waiting + served


def _ends_reading(answer: PartitionAnswer) -> bool:
    """Returns True if a stream stops reading the partition."""
    return bool(answer.error_code) or answer.diverging is not None


def next_offset(records: Buffer) -> int:
    """Returns the offset after the last record of some whole batches. Reads only their lengths and the last header."""
    position = last = 0
    while position < len(records):
        last = position
        position += LENGTH_OVERHEAD_BYTES + _LENGTH.unpack_from(records, position + _LENGTH_POSITION)[0]
    return read_header(records, last).next_offset
