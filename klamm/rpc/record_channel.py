"""The connections of a client to Kafka listeners of brokers, for requests with many records.

A client needs none of these connections, because it can send every request by gRPC. So `take` returns a free connection
or None, and connects in the background. A listener that cannot be reached is tried again after a pause that grows to a
minute."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import math
import random
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from klamm.client_task import client_task
from klamm.errors import KlammError
from klamm.ordered_set import OrderedSet
from klamm.retry import Backoff
from klamm.rpc.kafka_listener import KafkaListener
from klamm.rpc.login import SaslSource
from klamm.rpc.record_connection import RecordConnection
from klamm.rpc.record_handshake import expect_broker, log_in

log = logging.getLogger(__name__)

SESSION_USED: Final = 0.8
"""The part of a session's lifetime after which a client logs in again, with a new connection."""
WORTHWHILE_BYTES: Final = 64 * 1024
"""A client that has exchanged less with a broker makes no second connection to it."""
PAUSE: Final = Backoff(initial_ms=1_000, max_ms=60_000)
"""The pause after a failed attempt to connect."""


class Dialler:
    """Connects, checks the broker and logs in. `setup_timeout_ms` is the time for all of it."""

    def __init__(
        self,
        client_id: str,
        *,
        sasl: SaslSource | None,
        setup_timeout_ms: int,
        answer_max_bytes: int,
    ) -> None:
        self._client_id = client_id
        self._sasl = sasl
        self._setup_timeout_ms = setup_timeout_ms
        self._answer_max_bytes = answer_max_bytes

    async def dial(self, listener: KafkaListener) -> Dialled:
        """Returns a new connection. Raises OSError, TimeoutError or KlammError."""
        timeout_ms = self._setup_timeout_ms
        host, _, port = listener.address.rpartition(":")
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(self._setup_timeout_ms / 1000):
            _, connection = await loop.create_connection(
                lambda: RecordConnection(listener.address, self._client_id, self._answer_max_bytes),
                host.strip("[]"),
                int(port),
            )
            try:
                await expect_broker(connection, listener.cluster_id, listener.node_id, timeout_ms=timeout_ms)
                return Dialled(connection, await self._log_in(connection))
            except BaseException:
                connection.close()
                raise

    async def _log_in(self, connection: RecordConnection) -> float:
        """Returns until when the connection may be used, by the clock of the event loop."""
        if self._sasl is None:
            return math.inf
        began_s = asyncio.get_running_loop().time()
        return began_s + SESSION_USED * await log_in(connection, self._sasl, timeout_ms=self._setup_timeout_ms)


class Dialled(NamedTuple):
    """A connection, and the time when its session ends."""

    connection: RecordConnection
    ends_s: float


class RecordChannel:
    """The connections to one listener. At most `connections_max` are open."""

    def __init__(
        self,
        listener: KafkaListener,
        dial: Callable[[KafkaListener], Awaitable[Dialled]],
        rng: random.Random,
        *,
        connections_max: int,
    ) -> None:
        self._listener = listener
        self._dial = dial
        self._rng = rng
        self._connections_max = connections_max
        self._free: list[Dialled] = []
        self._in_use: OrderedSet[Dialled] = OrderedSet()
        self._dialling: asyncio.Task[None] | None = None
        self._record_bytes = 0
        self._failures = 0
        self._not_before_s = 0.0

    def count(self, size_bytes: int) -> None:
        """Counts records that were sent or received."""
        self._record_bytes += size_bytes

    def take(self) -> Dialled | None:
        """Returns a free connection, which the caller gives back, or None. If none is free, another one is made in the
        background."""
        now_s = asyncio.get_running_loop().time()
        while self._free:
            found = self._free.pop()
            if found.connection.is_open and now_s < found.ends_s:
                self._in_use.add(found)
                return found
            found.connection.close()
        is_full = len(self._in_use) >= self._connections_max
        is_worthwhile = self._record_bytes >= WORTHWHILE_BYTES
        if is_worthwhile and self._dialling is None and not is_full and now_s >= self._not_before_s:
            # The connection is for all calls, so it does not inherit the context of the first one.
            name, context = f"klamm-records-{self._listener.address}", contextvars.Context()
            self._dialling = client_task(self._connect(), name=name, context=context)
        return None

    def give_back(self, used: Dialled) -> None:
        """Takes a connection back after its call. It is free when the answer has come, which is later if the call was
        cancelled. If the connection was lost, the free ones are closed too, because the broker may be gone."""
        if used.connection.is_busy:
            used.connection.on_idle = lambda: self.give_back(used)
            return
        used.connection.on_idle = lambda: None
        self._in_use.discard(used)
        if used.connection.is_open:
            self._free.append(used)
            return
        for dialled in self._free:
            dialled.connection.close()
        self._free.clear()

    async def close(self) -> None:
        """Closes all connections. Calls under way raise CallFailed."""
        if self._dialling is not None:
            self._dialling.cancel()
            await asyncio.wait([self._dialling])
        for dialled in (*self._free, *self._in_use):
            dialled.connection.close()
        self._free.clear()

    async def _connect(self) -> None:
        try:
            self._free.append(await self._dial(self._listener))
            self._failures = 0
        except (OSError, TimeoutError, KlammError) as error:
            self._failures += 1
            pause_ms = PAUSE.delay_ms(self._failures, self._rng)
            self._not_before_s = asyncio.get_running_loop().time() + pause_ms / 1000
            log.debug("records to %s go by gRPC, again in %d ms: %s", self._listener.address, pause_ms, error)
        finally:
            self._dialling = None
