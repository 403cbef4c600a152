"""The way to one other controller: a stream of messages, opened again whenever it breaks.

Nothing is promised: what does not fit the queue, and what was under way when the stream broke, is dropped, and Raft
sends again what still matters. So a controller that hangs costs no more than a full queue.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque

import grpc
from grpc import aio

from klamm.retry import Backoff
from klamm.wire.service import RAFT, Stub
from klamm.wire.v1.raft_pb2 import RaftEnvelope, RaftMessage
from klamm_controller.io.raft_codec import encode
from klamm_controller.raft.messages import Message

log = logging.getLogger(__name__)

QUEUED_MESSAGES_MAX = 1_000
"""More than Raft keeps in flight to one replica."""
ENVELOPE_MESSAGES_MAX = 16
"""A message is 1 MiB at most (raft.settings.append_bytes_max, but for one big entry)."""
RECONNECT = Backoff(initial_ms=20, max_ms=500)
"""Short: an election waits for it."""

_OPTIONS = [
    ("grpc.max_send_message_length", -1),
    # Channels to one address otherwise share a connection, and its back-off of up to two minutes.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 500),
    ("grpc.max_reconnect_backoff_ms", 500),
    # A peer whose cable was pulled sends no FIN.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 2_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.enable_http_proxy", 0),
]


class PeerLink:
    """Sends to the controller at `address`; `run` is a task of its own."""

    def __init__(self, address: str, *, cluster_id: str, rng: random.Random) -> None:
        self._address = address
        self._cluster_id = cluster_id
        self._rng = rng
        self._queue: deque[Message] = deque()
        self._wake = asyncio.Event()
        self._failures = 0

    def send(self, message: Message) -> None:
        """Queues the message, or drops it when the queue is full."""
        if len(self._queue) < QUEUED_MESSAGES_MAX:
            self._queue.append(message)
            self._wake.set()

    async def run(self) -> None:
        """Sends until cancelled."""
        channel = aio.insecure_channel(self._address, options=_OPTIONS)
        try:
            while True:
                await self._run_stream(channel)
                self._failures += 1
                self._queue.clear()
                await asyncio.sleep(RECONNECT.delay_ms(self._failures, self._rng) / 1000)
        finally:
            await channel.close()

    async def _run_stream(self, channel: aio.Channel) -> None:
        """Returns when the stream broke."""
        call = Stub(channel, RAFT).exchange()
        try:
            while True:
                await self._wake.wait()
                await call.write(self._next_envelope())
                if self._failures:
                    log.info("controller at %s is reached again", self._address)
                self._failures = 0
        except (grpc.RpcError, asyncio.InvalidStateError):
            if not self._failures:
                log.warning("controller at %s is not reached: %s", self._address, await call.details())
        finally:
            call.cancel()

    def _next_envelope(self) -> RaftEnvelope:
        messages: list[RaftMessage] = []
        while self._queue and len(messages) < ENVELOPE_MESSAGES_MAX:
            messages.append(encode(self._queue.popleft()))
        if not self._queue:
            self._wake.clear()
        return RaftEnvelope(cluster_id=self._cluster_id, messages=messages)
