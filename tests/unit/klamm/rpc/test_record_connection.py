"""Tests connections for records with a real socket and a server that the test plays."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest

from klamm.rpc.record_connection import SMALL_BYTES, RecordConnection
from klamm.rpc.status import CallFailed, Status
from tests.support.played_listener import (
    ANSWER_MAX_BYTES,
    answer_frame,
    be_silent,
    next_frame,
    run_with_connection,
)
from tests.support.waiting import patience

TIMEOUT_MS = int(patience() * 1_000)


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers each request with its body, in pieces of different sizes."""
    while True:
        *_, correlation_id, _, body = await next_frame(reader)
        answer = answer_frame(correlation_id, body)
        for first in range(0, len(answer), 3_000):
            writer.write(answer[first : first + 3_000])
            await writer.drain()


SIZES = (0, 1, SMALL_BYTES - 8, SMALL_BYTES - 7, SMALL_BYTES, 100_000, ANSWER_MAX_BYTES - 4)


def test_answers_of_any_size_arrive() -> None:
    async def scenario(connection: RecordConnection) -> None:
        for size in SIZES:
            body = bytes(range(256)) * (size // 256) + bytes(range(size % 256))
            pieces = [body[:100], memoryview(body)[100:]]
            assert await connection.call(1, 0, pieces, TIMEOUT_MS) == body
        assert connection.is_open

    run_with_connection(echo, scenario)


@pytest.mark.parametrize("read_bytes", [1, 3_000, 10_000_000])
def test_requests_behind_each_other_get_their_answers(read_bytes: int) -> None:
    bodies = [bytes((size % 256,)) * size for size in SIZES]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers = bytearray()
        for _ in bodies:
            *_, correlation_id, _, body = await next_frame(reader)
            answers += answer_frame(correlation_id, body)
        for first in range(0, len(answers), read_bytes):
            writer.write(answers[first : first + read_bytes])
            if first < 100 * read_bytes:
                await writer.drain()

    async def scenario(connection: RecordConnection) -> None:
        answers = [connection.send(1, 0, [body]) for body in bodies]
        assert [await answer for answer in answers] == bodies
        assert not connection.is_busy

    run_with_connection(serve, scenario)


def test_all_requests_under_way_fail_when_the_connection_is_lost() -> None:
    async def scenario(connection: RecordConnection) -> None:
        answers = [connection.send(1, 0, [b""]) for _ in range(3)]
        connection.close()
        for answer in answers:
            with pytest.raises(CallFailed, match="the client closed the connection"):
                await answer

    run_with_connection(be_silent, scenario)


def test_the_header_names_the_api_and_the_client() -> None:
    seen: list[Any] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            seen.append(await next_frame(reader))
            writer.write(answer_frame(seen[-1][2], b""))

    async def scenario(connection: RecordConnection) -> None:
        await connection.call(10_000, 0, [b"large" * SMALL_BYTES, b"end"], TIMEOUT_MS)
        await connection.call(18, 3, [b"small"], TIMEOUT_MS)

    run_with_connection(serve, scenario)
    assert seen == [(10_000, 0, 1, "me", b"large" * SMALL_BYTES + b"end"), (18, 3, 2, "me", b"small")]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (struct.pack(">ii", 4, 7), "correlation id 7"),
        (struct.pack(">ii", 3, 1), "has 3 bytes"),
        (struct.pack(">ii", ANSWER_MAX_BYTES + 1, 1), f"has {ANSWER_MAX_BYTES + 1} bytes"),
        (answer_frame(1, b"x") + b"more", "4 bytes came after the answer"),
        (b"", "the server closed the connection"),
        (answer_frame(1, bytes(SMALL_BYTES))[:-1], "the server closed the connection"),
    ],
)
def test_wrong_answers_close_the_connection(answer: bytes, why: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await next_frame(reader)
        writer.write(answer)

    async def scenario(connection: RecordConnection) -> None:
        with pytest.raises(CallFailed, match=why) as caught:
            await connection.call(1, 0, [b""], TIMEOUT_MS)
        assert caught.value.status is Status.UNAVAILABLE
        assert not connection.is_open
        with pytest.raises(CallFailed, match=why):
            await connection.call(1, 0, [b""], TIMEOUT_MS)

    run_with_connection(serve, scenario)


def test_a_call_without_an_answer_closes_the_connection() -> None:
    """Its answer could come later, as that of another call."""

    async def scenario(connection: RecordConnection) -> None:
        with pytest.raises(CallFailed) as caught:
            await connection.call(1, 0, [b""], 1)
        assert caught.value.status is Status.DEADLINE_EXCEEDED
        assert not connection.is_open

    run_with_connection(be_silent, scenario)


def test_after_a_cancelled_call_the_connection_is_busy_until_its_answer_has_come() -> None:
    go_on = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await next_frame(reader)
        await go_on.wait()
        writer.write(answer_frame(1, bytes(100_000)))
        await next_frame(reader)
        writer.write(answer_frame(2, b"second"))

    async def scenario(connection: RecordConnection) -> None:
        idle = asyncio.Event()
        connection.on_idle = idle.set
        calling = asyncio.ensure_future(connection.call(1, 0, [b""], TIMEOUT_MS))
        await asyncio.sleep(0)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        assert connection.is_busy
        assert not idle.is_set()
        go_on.set()
        await idle.wait()
        assert not connection.is_busy
        assert await connection.call(1, 0, [b""], TIMEOUT_MS) == b"second"

    run_with_connection(serve, scenario)


def test_a_cancelled_call_without_an_answer_closes_the_connection_in_the_end() -> None:
    async def scenario(connection: RecordConnection) -> None:
        idle = asyncio.Event()
        connection.on_idle = idle.set
        calling = asyncio.ensure_future(connection.call(1, 0, [b""], 100))
        await asyncio.sleep(0)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        assert connection.is_open
        await idle.wait()
        assert not connection.is_open

    run_with_connection(be_silent, scenario)


def test_a_call_under_way_fails_when_the_client_closes_the_connection() -> None:
    async def scenario(connection: RecordConnection) -> None:
        calling = asyncio.ensure_future(connection.call(1, 0, [b""], TIMEOUT_MS))
        await asyncio.sleep(0)
        connection.close()
        with pytest.raises(CallFailed, match="the client closed the connection"):
            await calling

    run_with_connection(be_silent, scenario)
