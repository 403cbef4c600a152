"""ReplicaFetch: a follower's session with this leader, one stream, one answer for each request.

The leader answers as soon as there are `min_bytes`, an error or a divergence. If only the high watermark or the log
start moved, the leader waits a little for records to send with it. Alone, it would cost a message in each direction,
and new records would have to wait for the follower's next request. A follower with new partitions for the session sends
its next request without waiting for an answer. That request ends the wait of the previous one.

A session holds at most one message of about `MESSAGE_BYTES_MAX`, and one request that it has not processed yet.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from klamm.ordered_set import OrderedSet
from klamm.wire.framed import encode_framed
from klamm.wire.v1.broker_pb2 import ReplicaFetchHeader, ReplicaFetchRequest
from klamm_broker.io import metrics
from klamm_broker.io.record_reader import Buffer, RecordReader
from klamm_broker.io.request_memory import RequestMemory
from klamm_broker.log.files.storage_failure import LogDirFailure
from klamm_broker.replica.replica_manager import ReplicaManager
from klamm_broker.replica.replica_session import ReplicaSession, SessionAnswer, SessionWatch
from klamm_server.runtime.clock import Clock

MESSAGE_BYTES_MAX = 1024**2
"""The most record bytes in one message. Above this size, gRPC's cost per message no longer matters, and larger messages
only hold memory."""
NEWS_LINGER_MS = 10
"""How long a moved high watermark waits for records to be sent with it, in milliseconds."""


class ReplicaFetchRpc:
    """Handles ReplicaFetch streams of followers."""

    def __init__(
        self,
        replicas: ReplicaManager,
        watch: SessionWatch,
        records: RecordReader,
        memory: RequestMemory,
        clock: Clock,
    ) -> None:
        self._replicas = replicas
        self._watch = watch
        self._records = records
        self._memory = memory
        self._clock = clock
        self._inboxes: OrderedSet[_Inbox] = OrderedSet()

    async def replica_fetch(self, requests: AsyncIterator[ReplicaFetchRequest], context: Any) -> AsyncIterator[bytes]:
        inbox = _Inbox()
        self._inboxes.add(inbox)
        session = ReplicaSession(self._replicas, self._watch, on_ready=inbox.wake)
        reading = asyncio.create_task(inbox.fill(requests), name="replica-fetch-requests")
        try:
            while (request := await inbox.next()) is not None:
                session.on_request(request, now_ms=self._clock.monotonic_ms())
                found, records = await self._answer(session, request, inbox)
                header = ReplicaFetchHeader(partitions=session.sent(found, now_ms=self._clock.monotonic_ms()))
                self._memory.take_anyway(found.size_bytes)
                try:
                    yield encode_framed(header, records)
                finally:
                    self._memory.give_back(found.size_bytes)
        finally:
            self._inboxes.discard(inbox)
            session.close()
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reading

    async def _answer(
        self, session: ReplicaSession, request: ReplicaFetchRequest, inbox: _Inbox
    ) -> tuple[SessionAnswer, Sequence[Buffer]]:
        found = await self._wait(session, request, inbox)
        while True:
            with contextlib.suppress(LogDirFailure):  # the failed directory's partitions get an error from now on
                records = await self._records.read(found.slices)
                if not session.is_stale(found):
                    metrics.REPLICATION_BYTES_OUT.inc(found.size_bytes)
                    return found, records
            found = self._locate(session, request)

    def _locate(self, session: ReplicaSession, request: ReplicaFetchRequest) -> SessionAnswer:
        max_bytes = min(request.max_bytes, MESSAGE_BYTES_MAX, self._memory.free_bytes)
        return session.locate(max_bytes, now_ms=self._clock.monotonic_ms())

    async def _wait(self, session: ReplicaSession, request: ReplicaFetchRequest, inbox: _Inbox) -> SessionAnswer:
        """Waits until there are enough bytes, an urgent answer, a timeout or a further request, and returns the
        answer."""
        now_ms = self._clock.monotonic_ms()
        deadline_ms = now_ms + request.max_wait_ms
        min_bytes = min(request.min_bytes, request.max_bytes)
        lingers = False
        while True:
            if session.has_changes and not lingers:
                lingers = True
                deadline_ms = min(deadline_ms, now_ms + NEWS_LINGER_MS)
            is_over = inbox.has_next or now_ms >= deadline_ms
            wake_ms = deadline_ms
            if is_over or session.has_ready:
                found = self._locate(session, request)
                if is_over or found.is_urgent or found.size_bytes >= min_bytes:
                    return found
                if found.held and not found.size_bytes:
                    wake_ms = min(deadline_ms, session.resume_at_ms(now_ms))
            await inbox.wait((wake_ms - now_ms) / 1000)
            now_ms = self._clock.monotonic_ms()

    def wake(self) -> None:
        """Makes all sessions check again, after the quota has changed."""
        for inbox in self._inboxes:
            inbox.wake()

    def close(self) -> None:
        """Ends all sessions because the broker stops."""
        for inbox in self._inboxes:
            inbox.end()


class _Inbox:
    """The unanswered requests of one stream. Its bell wakes the session for requests and for other changes."""

    def __init__(self) -> None:
        self._requests: list[ReplicaFetchRequest] = []
        self._ended = False
        self._bell = asyncio.Event()
        self._room = asyncio.Event()
        self.wake: Callable[[], None] = self._bell.set

    @property
    def has_next(self) -> bool:
        return bool(self._requests) or self._ended

    async def fill(self, requests: AsyncIterator[ReplicaFetchRequest]) -> None:
        """Reads requests until the stream ends. It reads at most one request ahead."""
        try:
            async for request in requests:
                self._requests.append(request)
                self._bell.set()
                while self._requests:
                    self._room.clear()
                    await self._room.wait()
        finally:
            self.end()

    def end(self) -> None:
        """Ends the session. Drops requests that were read already."""
        self._ended = True
        self._bell.set()

    async def next(self) -> ReplicaFetchRequest | None:
        """Waits for the next request and removes it. Returns None after the end."""
        while not self._requests and not self._ended:
            self._bell.clear()
            await self._bell.wait()
        if self._ended:
            return None
        request = self._requests.pop()
        self._room.set()
        return request

    async def wait(self, timeout_s: float) -> None:
        """Waits until the bell rings, for at most `timeout_s` seconds."""
        self._bell.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._bell.wait()
