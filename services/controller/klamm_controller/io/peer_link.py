"""The link to one other controller: a stream of messages that is opened again whenever it breaks.

The link ends when there was nothing to send for IDLE_S. It does not promise delivery. It drops messages that do not fit
into the queue, and messages that were under way when the stream broke. Raft sends again the messages that still matter.
So a controller that hangs costs no more than a full queue.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Sequence

from klamm.errors import BrokerError
from klamm.retry import Backoff
from klamm.rpc.connection import Connection
from klamm.rpc.options import QUORUM
from klamm.rpc.transport import Transport
from klamm.wire.calls import Duplex
from klamm.wire.v1.raft_pb2 import RaftEnvelope, RaftExchangeResponse
from klamm.wire.v1.raft_rpc import RAFT
from klamm_controller.io.joining import joined
from klamm_controller.raft.messages import Message
from klamm_server.rpc.retries import ServerRetries

log = logging.getLogger(__name__)

QUEUED_MESSAGES_MAX = 1_000
"""More than Raft keeps in flight to one replica."""
ENVELOPE_MESSAGES_MAX = 16
"""A message is 1 MiB at most (raft.settings.append_bytes_max, but for one big entry)."""
IDLE_S = 60.0
"""A link to which nothing was given for this long ends: its controller is none of the quorum any more."""
RECONNECT = Backoff(initial_ms=20, max_ms=500)
"""Short: an election waits for it."""


class PeerLink:
    """Sends to the controller at `address`; `run` is a task of its own."""

    def __init__(
        self,
        transport: Transport,
        address: str,
        *,
        make_envelope: Callable[[Sequence[Message]], RaftEnvelope],
        rng: random.Random,
    ) -> None:
        self._transport = transport
        self._address = address
        self._make_envelope = make_envelope
        self._queue: deque[Message] = deque()
        self._wake = asyncio.Event()
        self._given_s = asyncio.get_running_loop().time()
        """When there was something to send last."""
        self._retries = ServerRetries("link to a controller", address, RECONNECT, rng, warn_every=100)

    def send(self, message: Message) -> None:
        """Queues the message, or drops it when the queue is full."""
        self._given_s = asyncio.get_running_loop().time()
        if len(self._queue) < QUEUED_MESSAGES_MAX:
            self._queue.append(message)
            self._wake.set()

    async def run(self) -> None:
        """Sends until cancelled, or until nothing was given for IDLE_S."""
        try:
            while True:
                # A channel to a name that was not found for a while asks again after up to two minutes; a new one does.
                async with Connection(self._transport, self._address, QUORUM) as connection:
                    why = await self._run_stream(connection)
                self._queue.clear()
                await self._retries.pause(why)
        except TimeoutError:
            log.info("closed the idle connection to the controller at %s", self._address)

    async def _run_stream(self, connection: Connection) -> str:
        """Returns why the stream broke. Raises TimeoutError when there is nothing to send for too long."""
        call = connection.stub(RAFT).exchange()
        call.add_done_callback(lambda _: self._wake.set())
        try:
            while await self._wait_for_messages(call):
                await call.write(self._next_envelope())
                if self._retries.failures:
                    log.info("reconnected to the controller at %s", self._address)
                self._retries.reset()
            await call.read()
        except BrokerError as error:
            return str(error)
        finally:
            call.cancel()
        return "the controller ended the stream"

    async def _wait_for_messages(self, call: Duplex[RaftEnvelope, RaftExchangeResponse]) -> bool:
        """Waits until there are messages to send. Returns False if the stream breaks first. If only the next message
        detected the break, that message would be lost. Followers rarely send each other more than one, a vote
        request."""
        async with asyncio.timeout_at(self._given_s + IDLE_S):
            while not self._queue and not call.done():
                self._wake.clear()
                await self._wake.wait()
        return not call.done()

    def _next_envelope(self) -> RaftEnvelope:
        messages: list[Message] = []
        while self._queue and len(messages) < ENVELOPE_MESSAGES_MAX:
            message = self._queue.popleft()
            both = joined(messages[-1], message) if messages else None
            if both is None:
                messages.append(message)
            else:
                messages[-1] = both
        return self._make_envelope(messages)
