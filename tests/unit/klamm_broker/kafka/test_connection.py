"""A connection over a real socket: frames in any pieces, answers in order, and what ends it."""

from __future__ import annotations

import asyncio
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka_door import HEARTBEAT_V0, REQUEST_MAX_BYTES, Door, answer_to, echo, frame

from klamm_broker import metrics
from klamm_broker.kafka import messages
from klamm_broker.kafka.connection import BUSY_BUFFER_BYTES, FIRST_BUFFER_BYTES
from klamm_broker.kafka.requests import SPOKEN, ApiKey, Request, parse_request
from klamm_broker.kafka.wire import MalformedRequestError


@pytest.mark.parametrize("piece_bytes", [1, 7, 100_000])
def test_frames_arrive_in_any_pieces_and_are_answered_in_order(piece_bytes: int) -> None:
    async def scenario() -> None:
        async with Door(echo) as door:
            reader, writer = await door.connect()
            bodies = [b"a", b"", b"bc", b"x" * (BUSY_BUFFER_BYTES + 5 if piece_bytes > 100 else 50), b"d"]
            data = b"".join(frame(number, body) for number, body in enumerate(bodies))
            for start in range(0, len(data), piece_bytes):
                writer.write(data[start : start + piece_bytes])
                await writer.drain()
            answers = [await answer_to(reader) for body in bodies if body]
            assert answers == [(number, body) for number, body in enumerate(bodies) if body]
            writer.close()

    asyncio.run(scenario())


def test_the_next_request_waits_for_the_answer_of_the_one_before() -> None:
    async def scenario() -> None:
        under_way: list[int] = []
        both, go_on = asyncio.Event(), asyncio.Event()

        async def handle(request: Request) -> list[bytes] | None:
            under_way.append(request.correlation_id)
            if len(under_way) == 2:
                both.set()
            await go_on.wait()
            return [b""]

        async with Door(handle) as door:
            reader, writer = await door.connect()
            writer.write(frame(1) + frame(2))
            _, other = await door.connect()
            other.write(frame(3))
            await both.wait()
            assert sorted(under_way) == [1, 3]
            go_on.set()
            assert [await answer_to(reader), await answer_to(reader)] == [(1, b""), (2, b"")]
            writer.close()
            other.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">i", REQUEST_MAX_BYTES + 1),
        struct.pack(">i", 0),
        struct.pack(">i", -1),
        struct.pack(">i", 4) + b"abcd",
        struct.pack(">ihhih", 10, 4, 0, 1, -1),
        struct.pack(">ihhih", 10, ApiKey.HEARTBEAT, 99, 1, -1),
        struct.pack(">ihhih", 10, ApiKey.HEARTBEAT, 0, 1, 500),
        b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
    ],
    ids=["too large", "empty", "negative", "no header", "unknown API", "unknown version", "short client id", "HTTP"],
)
def test_what_cannot_be_read_ends_the_connection_and_no_other(data: bytes) -> None:
    async def scenario() -> None:
        async with Door(echo) as door:
            good_reader, good = await door.connect()
            reader, writer = await door.connect()
            writer.write(data)
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await reader.readexactly(1)
            good.write(frame(7, b"still here"))
            assert await answer_to(good_reader) == (7, b"still here")
            good.close()
            writer.close()

    asyncio.run(scenario())


def test_a_mistake_of_a_handler_ends_that_connection_only() -> None:
    async def handle(request: Request) -> list[bytes] | None:
        assert request.correlation_id != 1, "broken"
        return [b"well"]

    async def scenario() -> None:
        async with Door(handle) as door:
            good_reader, good = await door.connect()
            reader, writer = await door.connect()
            writer.write(frame(1))
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await reader.readexactly(1)
            good.write(frame(2))
            assert await answer_to(good_reader) == (2, b"well")
            good.close()
            writer.close()

    asyncio.run(scenario())


def test_more_than_max_connections_are_closed_at_once() -> None:
    async def scenario() -> None:
        async with Door(echo, connections_max=1) as door:
            first_reader, first = await door.connect()
            first.write(frame(1, b"a"))
            assert await answer_to(first_reader) == (1, b"a")
            reader, writer = await door.connect()
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await reader.readexactly(1)
            writer.close()
            first.close()

    asyncio.run(scenario())


BY_HAND = {ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA, ApiKey.API_VERSIONS}


def test_a_connection_holds_what_it_needs_and_gives_it_back_in_silence() -> None:
    async def scenario() -> None:
        async with Door(echo) as door:
            reader, writer = await door.connect()
            writer.write(frame(1, b"hello"))
            assert await answer_to(reader) == (1, b"hello")
            (connection,) = door.listener._connections
            assert len(connection._buffer) == FIRST_BUFFER_BYTES
            many = [b"x" * 100] * 50 + [b"y" * 3 * BUSY_BUFFER_BYTES]
            for number, body in enumerate(many):
                writer.write(frame(number, body))
            for number, body in enumerate(many):
                assert await answer_to(reader) == (number, body)
            assert len(connection._buffer) == BUSY_BUFFER_BYTES
            door.listener.look_for_silence(connection.last_request_ms + 10_000)
            assert len(connection._buffer) == BUSY_BUFFER_BYTES
            door.listener.look_for_silence(connection.last_request_ms + 20_000)
            assert len(connection._buffer) == FIRST_BUFFER_BYTES
            writer.write(frame(9, b"still here"))
            assert await answer_to(reader) == (9, b"still here")
            door.listener.look_for_silence(connection.last_request_ms + 70_000)
            assert await reader.read() == b""
            writer.close()

    asyncio.run(scenario())


def test_versions_that_nobody_speaks_are_counted_as_one() -> None:
    async def scenario() -> None:
        async with Door(echo) as door:
            reader, writer = await door.connect()
            for version in (100, 101, 31_000):
                message = HEARTBEAT_V0.pack(ApiKey.API_VERSIONS, version, version, -1) + b"\x00x"
                writer.write(struct.pack(">i", len(message)) + message)
                assert (await answer_to(reader))[0] == version
            writer.close()

    asyncio.run(scenario())
    counted = {
        sample.labels["version"]
        for metric in metrics.KAFKA_REQUESTS.collect()
        for sample in metric.samples
        if sample.labels["api"] == ApiKey.API_VERSIONS.name
    }
    assert counted == {"unknown"}


@given(data=st.data())
def test_no_bytes_make_a_decoder_raise_anything_but_malformed_request(data: st.DataObject) -> None:
    api_key = data.draw(st.sampled_from(sorted(SPOKEN.keys() - BY_HAND)))
    version = data.draw(st.integers(SPOKEN[api_key].min, SPOKEN[api_key].max))
    header = HEARTBEAT_V0.pack(api_key, version, 1, -1) + (b"\x00" if version >= SPOKEN[api_key].flexible else b"")
    try:
        request = parse_request(memoryview(header + data.draw(st.binary(max_size=60))), "")
        messages.decode(request)
    except MalformedRequestError:
        pass
