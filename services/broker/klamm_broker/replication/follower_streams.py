"""The streams of followers: a fetch session with this leader for each, one answer for each request.

A stream comes by gRPC (`replica_fetch.py`) or over a connection to a Kafka listener
(`kafka/hot/framed_replica_fetch.py`).

The leader answers as soon as there are `min_bytes`, an error or a divergence. If only the high watermark or the log
start moved, the leader waits a little for records to send with it. Alone, it would cost a message in each direction,
and new records would have to wait for the follower's next request. A follower with new partitions for the session sends
its next request without waiting for an answer. That request ends the wait of the previous one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from klamm.ordered_set import OrderedSet
from klamm.wire.v1.broker_pb2 import ReplicaFetchHeader, ReplicaFetchRequest
from klamm_broker.io import metrics
from klamm_broker.io.record_file import close_files
from klamm_broker.io.request_memory import RequestMemory
from klamm_broker.log.files.storage_failure import LogDirFailure
from klamm_broker.replica.fetch_reader import LocatedSlice
from klamm_broker.replica.replica_manager import ReplicaManager
from klamm_broker.replica.replica_session import ReplicaSession, SessionAnswer, SessionWatch
from klamm_server.runtime.clock import Clock

MESSAGE_BYTES_MAX = 1024**2
"""The most record bytes in one message. Above this size, the cost per message no longer matters, and larger messages
only hold memory."""
NEWS_LINGER_MS = 10
"""How long a moved high watermark waits for records to be sent with it, in milliseconds."""

PartT = TypeVar("PartT")


class FollowerAnswer(NamedTuple, Generic[PartT]):
    """The answer to a request: its header, and the records, which have `size_bytes` bytes."""

    header: ReplicaFetchHeader
    size_bytes: int
    records: Sequence[PartT]


class FollowerStreams:
    """All streams of followers."""

    def __init__(self, replicas: ReplicaManager, watch: SessionWatch, memory: RequestMemory, clock: Clock) -> None:
        self._replicas = replicas
        self._watch = watch
        self._memory = memory
        self._clock = clock
        self._streams: OrderedSet[FollowerStream] = OrderedSet()

    def __len__(self) -> int:
        """Returns the number of open streams."""
        return len(self._streams)

    def open(self) -> FollowerStream:
        """Opens a stream, which the caller closes."""
        stream = FollowerStream(self._replicas, self._watch, self._memory, self._clock, on_close=self._streams.discard)
        self._streams.add(stream)
        return stream

    def wake(self) -> None:
        """Makes all streams check again, after the quota has changed."""
        for stream in self._streams:
            stream.wake()


class FollowerStream:
    """One follower's session. The caller passes its requests in order, one at a time."""

    def __init__(
        self,
        replicas: ReplicaManager,
        watch: SessionWatch,
        memory: RequestMemory,
        clock: Clock,
        *,
        on_close: Callable[[FollowerStream], None],
    ) -> None:
        self._bell = asyncio.Event()
        self._session = ReplicaSession(replicas, watch, on_ready=self._bell.set)
        self._memory = memory
        self._clock = clock
        self._on_close = on_close

    def wake(self) -> None:
        """Makes the waiting request check again, because another one has arrived, or the quota has changed."""
        self._bell.set()

    def close(self) -> None:
        """Ends the session. Must be called once."""
        self._on_close(self)
        self._session.close()

    async def answer(
        self,
        request: ReplicaFetchRequest,
        read: Callable[[Sequence[LocatedSlice]], Awaitable[Sequence[PartT]]],
        has_next: Callable[[], bool],
    ) -> FollowerAnswer[PartT]:
        """Returns the answer, with what `read` returns for its records. If these are files, the caller closes them.

        Waits for enough bytes, an urgent answer, a timeout, or until `has_next` returns True, because another request
        has arrived or the stream ends. The caller then calls `wake`."""
        session = self._session
        session.on_request(request, now_ms=self._clock.monotonic_ms())
        found = await self._wait(request, has_next)
        while True:
            with contextlib.suppress(LogDirFailure):  # the failed directory's partitions get an error from now on
                records = await read(found.slices)
                if not session.is_stale(found):
                    break
                close_files(records)
            found = self._locate(request)
        metrics.REPLICATION_BYTES_OUT.inc(found.size_bytes)
        header = ReplicaFetchHeader(partitions=session.sent(found, now_ms=self._clock.monotonic_ms()))
        return FollowerAnswer(header, found.size_bytes, records)

    def _locate(self, request: ReplicaFetchRequest) -> SessionAnswer:
        max_bytes = min(request.max_bytes, MESSAGE_BYTES_MAX, self._memory.free_bytes)
        return self._session.locate(max_bytes, now_ms=self._clock.monotonic_ms())

    async def _wait(self, request: ReplicaFetchRequest, has_next: Callable[[], bool]) -> SessionAnswer:
        session = self._session
        now_ms = self._clock.monotonic_ms()
        deadline_ms = now_ms + request.max_wait_ms
        min_bytes = min(request.min_bytes, request.max_bytes)
        lingers = False
        while True:
            if session.has_changes and not lingers:
                lingers = True
                deadline_ms = min(deadline_ms, now_ms + NEWS_LINGER_MS)
            is_over = has_next() or now_ms >= deadline_ms
            wake_ms = deadline_ms
            if is_over or session.has_ready:
                found = self._locate(request)
                if is_over or found.is_urgent or found.size_bytes >= min_bytes:
                    return found
                if found.held and not found.size_bytes:
                    wake_ms = min(deadline_ms, session.resume_at_ms(now_ms))
            await self._pause((wake_ms - now_ms) / 1000)
            now_ms = self._clock.monotonic_ms()

    async def _pause(self, timeout_s: float) -> None:
        """Waits until the bell rings, for at most `timeout_s` seconds."""
        self._bell.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._bell.wait()
