"""A Kafka listener that the test plays: it gets each frame, and writes the answers itself."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from klamm.rpc.record_connection import RecordConnection
from tests.support.waiting import patience

ANSWER_MAX_BYTES = 1 << 20
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Frame(NamedTuple):
    """A request."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str
    body: bytes


async def next_frame(reader: asyncio.StreamReader) -> Frame:
    """Reads the next request."""
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    frame = await reader.readexactly(size)
    api_key, version, correlation_id, name_bytes = struct.unpack_from(">hhih", frame)
    name_end = 10 + name_bytes
    return Frame(api_key, version, correlation_id, frame[10:name_end].decode(), frame[name_end:])


def answer_frame(correlation_id: int, body: bytes) -> bytes:
    """Returns the frame of an answer."""
    return struct.pack(">ii", 4 + len(body), correlation_id) + body


async def be_silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    """Answers nothing."""
    await reader.read()


def run_with_connection(serve: Serve, scenario: Callable[[RecordConnection], Awaitable[Any]]) -> Any:
    """Returns the result of a scenario with a connection to a listener."""

    async def whole() -> Any:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await serve(reader, writer)
            except asyncio.IncompleteReadError:
                pass
            finally:
                writer.close()
                served.set()

        served = asyncio.Event()
        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: RecordConnection(f"127.0.0.1:{port}", "me", ANSWER_MAX_BYTES), "127.0.0.1", port
        )
        try:
            async with asyncio.timeout(patience()):
                return await scenario(connection)
        finally:
            connection.close()
            await served.wait()
            server.close()
            await server.wait_closed()

    return asyncio.run(whole())
