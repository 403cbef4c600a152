"""ReplicaFetch: the streams of followers that come by gRPC.

A stream holds at most one message of about `MESSAGE_BYTES_MAX`, and one request that it has not processed yet.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from klamm.ordered_set import OrderedSet
from klamm.wire.framed import encode_framed
from klamm.wire.v1.broker_pb2 import ReplicaFetchRequest
from klamm_broker.io.record_reader import RecordReader
from klamm_broker.io.request_memory import RequestMemory
from klamm_broker.replication.follower_streams import FollowerStreams


class ReplicaFetchRpc:
    """Handles ReplicaFetch calls of followers."""

    def __init__(self, streams: FollowerStreams, records: RecordReader, memory: RequestMemory) -> None:
        self._streams = streams
        self._records = records
        self._memory = memory
        self._inboxes: OrderedSet[_Inbox] = OrderedSet()

    async def replica_fetch(self, requests: AsyncIterator[ReplicaFetchRequest], context: Any) -> AsyncIterator[bytes]:
        inbox = _Inbox()
        self._inboxes.add(inbox)
        stream = self._streams.open()
        inbox.on_arrival = stream.wake
        reading = asyncio.create_task(inbox.fill(requests), name="replica-fetch-requests")
        try:
            while (request := await inbox.next()) is not None:
                header, size_bytes, records = await stream.answer(request, self._records.read, lambda: inbox.has_next)
                self._memory.take_anyway(size_bytes)
                try:
                    yield encode_framed(header, records)
                finally:
                    self._memory.give_back(size_bytes)
        finally:
            self._inboxes.discard(inbox)
            stream.close()
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reading

    def close(self) -> None:
        """Ends all calls because the broker stops."""
        for inbox in self._inboxes:
            inbox.end()


class _Inbox:
    """The unanswered requests of one call."""

    def __init__(self) -> None:
        self._requests: list[ReplicaFetchRequest] = []
        self._ended = False
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()
        self.on_arrival: Callable[[], None] = lambda: None
        """Called when a request arrives, and at the end."""

    @property
    def has_next(self) -> bool:
        return bool(self._requests) or self._ended

    async def fill(self, requests: AsyncIterator[ReplicaFetchRequest]) -> None:
        """Reads requests until the stream ends. It reads at most one request ahead."""
        try:
            async for request in requests:
                self._requests.append(request)
                self._announce()
                while self._requests:
                    self._room.clear()
                    await self._room.wait()
        finally:
            self.end()

    def end(self) -> None:
        """Ends the session. Drops requests that were read already."""
        self._ended = True
        self._announce()

    async def next(self) -> ReplicaFetchRequest | None:
        """Waits for the next request and removes it. Returns None after the end."""
        while not self._requests and not self._ended:
            self._arrived.clear()
            await self._arrived.wait()
        if self._ended:
            return None
        request = self._requests.pop()
        self._room.set()
        return request

    def _announce(self) -> None:
        self._arrived.set()
        self.on_arrival()
