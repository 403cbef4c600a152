"""Relays connections to a server from an address of this machine, for clients that cannot choose their own address."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator


@contextlib.asynccontextmanager
async def relayed(target: str, *, source: str) -> AsyncIterator[int]:
    """Yields the port of a relay. The server at `target`, a host and port, sees its clients at the address `source`."""
    host, _, port = target.rpartition(":")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers = [writer]
        try:
            there_reader, there_writer = await asyncio.open_connection(host, int(port), local_addr=(source, 0))
            writers.append(there_writer)
            await asyncio.gather(_copy(reader, there_writer), _copy(there_reader, writer))
        finally:
            for one in writers:
                one.close()
            await asyncio.gather(*(one.wait_closed() for one in writers), return_exceptions=True)

    def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.append(asyncio.create_task(serve(reader, writer)))

    serving: list[asyncio.Task[None]] = []
    server = await asyncio.start_server(begin, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copies bytes until one side closes the connection."""
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    if writer.can_write_eof():
        with contextlib.suppress(OSError):
            writer.write_eof()
