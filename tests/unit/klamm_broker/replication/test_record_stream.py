"""Tests a follower's stream over a real connection, to a leader that the test plays."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from klamm.errors import NetworkError, RequestTimedOutError
from klamm.rpc.record_connection import RecordConnection
from klamm.wire.record_frames import REPLICA_FETCH
from klamm.wire.v1.broker_pb2 import ReplicaFetchRequest
from klamm_broker.replication.record_stream import RecordStream
from tests.support.played_listener import answer_frame, be_silent, next_frame, run_with_connection
from tests.support.waiting import patience


async def answer_two(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers two requests with their session ids, after both have come."""
    seen = [await next_frame(reader) for _ in range(2)]
    for frame in seen:
        assert frame.api_key == REPLICA_FETCH
        session_id = ReplicaFetchRequest.FromString(frame.body).session_id
        writer.write(answer_frame(frame.correlation_id, b"%d" % session_id))
    await reader.read()


async def hang_up(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await next_frame(reader)


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

    run_with_connection(answer_two, scenario)


def test_a_closed_connection_ends_the_stream() -> None:
    async def scenario(connection: RecordConnection) -> None:
        stream = stream_of(connection)
        await stream.write(ReplicaFetchRequest())
        with pytest.raises(NetworkError, match="ReplicaFetch at"):
            await stream.read()
        with pytest.raises(NetworkError, match="ReplicaFetch at"):
            await stream.write(ReplicaFetchRequest())
        assert not stream.has_answers

    run_with_connection(hang_up, scenario)


def test_a_leader_that_does_not_answer_in_time_is_lost() -> None:
    async def scenario(connection: RecordConnection) -> None:
        stream = stream_of(connection, timeout_ms=1)
        await stream.write(ReplicaFetchRequest())
        with pytest.raises(RequestTimedOutError, match="no answer after 1 ms"):
            await stream.read()

    run_with_connection(be_silent, scenario)
