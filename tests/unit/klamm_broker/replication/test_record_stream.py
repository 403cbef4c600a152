"""Tests a follower's stream over a real connection, to a leader that the test plays."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from klamm.errors import NetworkError, RequestTimedOutError
from klamm.rpc.record_connection import RecordConnection
from klamm.wire.record_frames import REPLICA_FETCH
from klamm.wire.v1.broker_pb2 import ReplicaFetchRequest
from klamm_broker.replication.record_stream import RecordStream
from tests.support.waiting import patience

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def run(serve: Serve, scenario: Callable[[RecordConnection], Awaitable[None]]) -> None:
    async def whole() -> None:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await serve(reader, writer)
            writer.close()
            served.set()

        served = asyncio.Event()
        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: RecordConnection(f"127.0.0.1:{port}", "broker-2", -1), "127.0.0.1", port
        )
        async with asyncio.timeout(patience()):
            await scenario(connection)
        connection.close()
        await served.wait()
        server.close()
        await server.wait_closed()

    asyncio.run(whole())


async def request_of(reader: asyncio.StreamReader) -> tuple[int, int, ReplicaFetchRequest]:
    """Returns the API key, the correlation id and the message of the next request."""
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    frame = await reader.readexactly(size)
    api_key, _, correlation_id, name_bytes = struct.unpack_from(">hhih", frame)
    return api_key, correlation_id, ReplicaFetchRequest.FromString(frame[10 + name_bytes :])


async def answer_two(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers two requests with their session ids, after both have come."""
    seen = [await request_of(reader) for _ in range(2)]
    for api_key, correlation_id, request in seen:
        assert api_key == REPLICA_FETCH
        body = b"%d" % request.session_id
        writer.write(struct.pack(">ii", 4 + len(body), correlation_id) + body)
    await reader.read()


async def hang_up(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await request_of(reader)


async def be_silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.read()


def stream_of(connection: RecordConnection, **options: Any) -> RecordStream:
    return RecordStream(connection, timeout_ms=options.get("timeout_ms", int(patience() * 1_000)))


def test_two_requests_may_be_in_flight() -> None:
    async def scenario(connection: RecordConnection) -> None:
        stream = stream_of(connection)
        await stream.write(ReplicaFetchRequest(session_id=7))
        assert not stream.has_answers
        await stream.write(ReplicaFetchRequest(session_id=8))
        assert [await stream.read(), await stream.read()] == [b"7", b"8"]
        assert stream.has_answers

    run(answer_two, scenario)


def test_a_closed_connection_ends_the_stream() -> None:
    async def scenario(connection: RecordConnection) -> None:
        stream = stream_of(connection)
        await stream.write(ReplicaFetchRequest())
        with pytest.raises(NetworkError, match="ReplicaFetch at"):
            await stream.read()
        with pytest.raises(NetworkError, match="ReplicaFetch at"):
            await stream.write(ReplicaFetchRequest())
        assert not stream.has_answers

    run(hang_up, scenario)


def test_a_leader_that_does_not_answer_in_time_is_lost() -> None:
    async def scenario(connection: RecordConnection) -> None:
        stream = stream_of(connection, timeout_ms=1)
        await stream.write(ReplicaFetchRequest())
        with pytest.raises(RequestTimedOutError, match="no answer after 1 ms"):
            await stream.read()

    run(be_silent, scenario)
