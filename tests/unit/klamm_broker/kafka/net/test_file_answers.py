"""Tests answers whose records are files: sent whole and in order, to slow readers too, with all descriptors closed."""

from __future__ import annotations

import asyncio
import itertools
import pathlib
import socket
import struct
from collections.abc import Callable

import pytest
import uvloop

from klamm_broker.kafka.codec.wire import Part
from klamm_broker.kafka.net.connection import Answer
from klamm_broker.kafka.requests import Request
from tests.support.kafka_listener import ServedListener, answer_to, echo, frame, waits
from tests.support.record_files import CONTENT, FILE_BYTES, Files


@pytest.fixture
def files(tmp_path: pathlib.Path) -> Files:
    return Files(tmp_path)


def run_with_uvloop(scenario: Callable[[], object]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario())


@pytest.mark.parametrize("run", [asyncio.run, run_with_uvloop], ids=["asyncio", "uvloop"])
def test_bytes_and_files_arrive_in_their_order(files: Files, run: Callable[[object], None]) -> None:
    pieces = [(0, 100_000), (FILE_BYTES - 1, 1), (4096, 3_000_000), (123, 70_000)]

    @waits
    async def handle(request: Request) -> Answer:
        if request.correlation_id % 2:
            return [b"plain"]
        parts: list[Part] = [b"first"]
        for position, size_bytes in pieces:
            parts += [files.make(position, size_bytes), b"then"]
        return parts

    async def scenario() -> None:
        async with ServedListener(handle) as served:
            reader, writer = await served.connect()
            writer.write(b"".join(frame(number, b"x") for number in range(1, 8)))
            expected = b"first" + b"".join(CONTENT[at : at + size] + b"then" for at, size in pieces)
            for number in range(1, 8):
                assert await answer_to(reader) == (number, b"plain" if number % 2 else expected)
            writer.close()
        assert files.open_count == 0

    run(scenario if run is run_with_uvloop else scenario())


def test_a_client_that_stops_reading_blocks_no_other_client_and_leaves_no_file_open(files: Files) -> None:
    @waits
    async def handle(request: Request) -> Answer:
        return [files.make(0, FILE_BYTES)] if request.correlation_id == 1 else echo(request)

    async def scenario() -> None:
        async with ServedListener(handle) as served:
            with socket.create_connection(("127.0.0.1", served.port)) as slow:
                slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                slow.sendall(frame(1))
                reader, writer = await served.connect()
                for number in itertools.count(2):
                    writer.write(frame(number, b"quick"))
                    assert await answer_to(reader) == (number, b"quick")
                    if files.open_count and number > 10:
                        break
                writer.close()
            await files.until(0)
        assert served.memory.held_bytes == 0

    asyncio.run(scenario())


def test_a_client_that_disconnects_during_an_answer_is_not_logged(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    @waits
    async def handle(request: Request) -> list[Part] | None:
        return [files.make(0, FILE_BYTES)] if request.correlation_id == 1 else echo(request)

    async def scenario() -> None:
        async with ServedListener(handle) as served:
            with socket.create_connection(("127.0.0.1", served.port)) as slow:
                slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                slow.sendall(frame(1))
                await files.until(1)
                # Unread bytes in the receive buffer turn the close into a reset.
                slow.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            await files.until(0)
            reader, writer = await served.connect()
            writer.write(frame(2, b"next"))
            assert await answer_to(reader) == (2, b"next")
            writer.close()
            await writer.wait_closed()

    asyncio.run(scenario())
    assert not caplog.records


def test_a_listener_that_closes_during_an_answer_closes_its_files(files: Files) -> None:
    @waits
    async def handle(request: Request) -> Answer:
        return [files.make(0, FILE_BYTES)]

    async def scenario() -> None:
        async with ServedListener(handle) as served:
            with socket.create_connection(("127.0.0.1", served.port)) as slow:
                slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                slow.sendall(frame(1))
                await files.until(1)
                await served.listener.close()
                assert files.open_count == 0

    asyncio.run(scenario())


def test_a_file_that_was_truncated_ends_the_connection(files: Files) -> None:
    @waits
    async def handle(request: Request) -> Answer:
        file = files.make(0, FILE_BYTES)
        files.cut(1_000)
        return [file]

    async def scenario() -> None:
        async with ServedListener(handle) as served:
            reader, writer = await served.connect()
            writer.write(frame(1))
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            assert size == FILE_BYTES + 4
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await reader.readexactly(size)
            writer.close()
        assert files.open_count == 0

    asyncio.run(scenario())
