"""The link to one other controller: a stream of messages that the sender opens again whenever it breaks.

The link ends when there was nothing to send for IDLE_S. The link does not promise delivery. It drops messages that do
not fit into the queue, and messages that were under way when the stream broke. Raft sends again the messages that still
matter. So a controller that hangs costs no more than a full queue.
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
"""The most messages that a link queues. Raft keeps fewer messages in flight to one replica."""
ENVELOPE_MESSAGES_MAX = 16
"""The most messages in one envelope. A message has at most 1 MiB, unless a single entry is bigger
(raft.settings.append_bytes_max)."""
IDLE_S = 60.0
"""A link ends when nothing was sent for this many seconds, because its controller is probably no longer in the
quorum."""
RECONNECT = Backoff(initial_ms=20, max_ms=500)
"""The pauses between attempts to reconnect. They are short, because elections wait for the connection."""


class PeerLink:
    """Sends messages to the controller at `address`. The caller runs `run` as a task."""

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
        """The event loop's time of the last `send`, in seconds."""
        self._retries = ServerRetries("link to a controller", address, RECONNECT, rng, warn_every=100)

    def send(self, message: Message) -> None:
        """Queues the message, or drops it when the queue is full."""
        self._given_s = asyncio.get_running_loop().time()
        if len(self._queue) < QUEUED_MESSAGES_MAX:
            self._queue.append(message)
            self._wake.set()

    async def run(self) -> None:
        """Sends queued messages until cancelled, or until `send` was not called for IDLE_S."""
        try:
            while True:
                # A channel that could not resolve a name may wait two minutes before it tries again. A new channel does
                # not.
                async with Connection(self._transport, self._address, QUORUM) as connection:
                    why = await self._run_stream(connection)
                self._queue.clear()
                await self._retries.pause(why)
        except TimeoutError:
            log.info("closed the idle connection to the controller at %s", self._address)

    async def _run_stream(self, connection: Connection) -> str:
        """Sends queued messages over one stream. Returns the reason after the stream broke. Raises TimeoutError if
        `send` was not called for IDLE_S."""
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
        """Waits until there are messages to send, and returns True. Returns False if the stream has broken. Otherwise
        the next message would be lost, because only sending it would show the break. A lost message matters: a follower
        rarely sends another follower more than one, a vote request."""
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
