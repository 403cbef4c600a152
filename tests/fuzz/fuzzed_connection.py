"""A connection of the Kafka listener that is fed whatever a fuzzer thinks of. Only its socket is not real: bytes go
straight into it, answers are dropped."""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import struct
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from klamm_broker.kafka.net.connection import KafkaConnection
    from klamm_broker.kafka.net.listener import KafkaListener

TURNS = 12
"""How many turns of the event loop an input has for its answers; then the client hangs up."""
END_S = 10
REPORT_EVERY = 50_000
WARM_UP_INPUTS = 200_000
"""Caches and the corpus have their size by then."""
GROWTH_MAX_MB = 100


class Transport:
    """The connection's socket. Answers are dropped but for those in files, which go to a pair of real ones."""

    def __init__(self) -> None:
        self.is_open = True
        self._pair: tuple[socket.socket, socket.socket] | None = None

    def get_extra_info(self, name: str) -> Any:
        if name == "peername":
            return ("fuzz", 1)
        if self._pair is None:
            self._pair = socket.socketpair()
            self._pair[0].setblocking(False)
        return self._pair[0]

    def is_closing(self) -> bool:
        return not self.is_open

    def abort(self) -> None:
        self.is_open = False

    def close(self) -> None:
        self.is_open = False
        for end in self._pair or ():
            end.close()

    def write(self, data: bytes) -> None: ...

    def writelines(self, parts: list[bytes]) -> None:
        assert all(len(part) >= 0 for part in parts)

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def set_write_buffer_limits(self, high: int) -> None: ...


class Mistakes(logging.Handler):
    """Whatever the broker logs as an error was ours, not the input's."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.first: logging.LogRecord | None = None

    def emit(self, record: logging.LogRecord) -> None:
        self.first = self.first or record
        if record.levelno >= logging.CRITICAL:
            print(logging.Formatter().format(record), flush=True)

    def check(self) -> None:
        if self.first is not None:
            raise AssertionError(logging.Formatter().format(self.first))


def framed(message: bytes) -> bytes:
    return struct.pack(">i", len(message)) + message


class Target:
    """One listener, and one connection for each input. `unpack` makes of an input what the client sends, piece by
    piece; `check` looks at the connection when that is served."""

    def __init__(
        self,
        listener: KafkaListener,
        loop: asyncio.AbstractEventLoop,
        *,
        connect: Callable[[], KafkaConnection],
        unpack: Callable[[bytes], Iterable[bytes]],
        check: Callable[[KafkaConnection], None] = lambda connection: None,
    ) -> None:
        self._listener = listener
        self._loop = loop
        self._connect = connect
        self._unpack = unpack
        self._check = check
        self._count = 0
        self._warm_mb = 0.0
        self._mistakes = Mistakes()
        logging.getLogger().addHandler(self._mistakes)
        loop.set_exception_handler(self._on_loop_error)

    def __call__(self, data: bytes) -> None:
        self._loop.run_until_complete(self._feed(data))
        self._mistakes.check()
        assert not self._listener.memory.held_bytes, f"{self._listener.memory.held_bytes} bytes are held by nobody"
        assert not len(self._listener), "a connection stayed"
        self._count += 1
        if self._count % REPORT_EVERY == 0:
            self._report()

    async def _feed(self, data: bytes) -> None:
        transport = Transport()
        connection = self._connect()
        connection.connection_made(transport)
        for piece in self._unpack(data):
            rest = memoryview(piece)
            while rest and transport.is_open:
                room = connection.get_buffer(-1)
                if not room:
                    break
                taken = min(len(room), len(rest))
                room[:taken] = rest[:taken]
                connection.buffer_updated(taken)
                rest = rest[taken:]
                await asyncio.sleep(0)
        for _ in range(TURNS):
            if not transport.is_open:
                break
            await asyncio.sleep(0)
        self._check(connection)
        connection.connection_lost(None)
        async with asyncio.timeout(END_S):
            await connection.closed()
        transport.close()

    def _report(self) -> None:
        peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
        print(f"inputs={self._count} peak_memory_mb={peak_mb:.0f}", flush=True)
        if self._count == WARM_UP_INPUTS:
            self._warm_mb = peak_mb
        assert not self._warm_mb or peak_mb < self._warm_mb + GROWTH_MAX_MB, (self._warm_mb, peak_mb)

    def _on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        logging.getLogger().error("event loop: %s", context.get("message"), exc_info=context.get("exception"))
