"""Tests records of files through a transport that encrypts: whole, in order, with only a few of them in memory."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from klamm_broker.kafka.codec.wire import Part
from klamm_broker.kafka.net.connection import Answer
from klamm_broker.kafka.net.file_sender import FileSender
from klamm_broker.kafka.net.slice_sender import SLICE_BYTES, WRITE_BUFFER_BYTES, SliceSender
from klamm_broker.kafka.requests import Request
from tests.support.kafka_listener import ServedListener, answer_to, echo, frame, waits
from tests.support.record_files import CONTENT, FILE_BYTES, Files
from tests.support.tls_world import TlsWorld
from tests.support.waiting import settle

Run = Callable[[Coroutine[Any, Any, None]], None]


def run_with_uvloop(scenario: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario)


both_loops = pytest.mark.parametrize("run", [asyncio.run, run_with_uvloop], ids=["asyncio", "uvloop"])


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@pytest.fixture
def world(tmp_path: Path) -> TlsWorld:
    return TlsWorld(tmp_path)


@both_loops
def test_bytes_and_files_arrive_in_their_order(files: Files, world: TlsWorld, run: Run) -> None:
    pieces = [(0, 100_000), (FILE_BYTES - 1, 1), (4096, 3_000_000), (123, SLICE_BYTES), (7, SLICE_BYTES + 1)]

    @waits
    async def handle(request: Request) -> Answer:
        if request.correlation_id % 2:
            return [b"plain"]
        parts: list[Part] = [b"first"]
        for position, size_bytes in pieces:
            parts += [files.make(position, size_bytes), b"then"]
        return parts

    async def scenario() -> None:
        expected = b"first" + b"".join(CONTENT[at : at + size] + b"then" for at, size in pieces)
        async with ServedListener(handle, tls=world.clients()) as served:

            async def client() -> None:
                reader, writer = await served.connect(world.dialler())
                writer.write(b"".join(frame(number, b"x") for number in range(1, 5)))
                for number in range(1, 5):
                    assert await answer_to(reader) == (number, b"plain" if number % 2 else expected)
                writer.close()

            # Several senders share one buffer in turn.
            await asyncio.gather(*(client() for _ in range(3)))
        assert files.open_count == 0

    run(scenario())


@both_loops
def test_a_tls_client_that_stops_reading_holds_little_memory_and_blocks_no_other_client(
    files: Files, world: TlsWorld, run: Run
) -> None:
    @waits
    async def handle(request: Request) -> Answer:
        return [files.make(0, FILE_BYTES)] * 20 if request.correlation_id == 1 else echo(request)

    async def scenario() -> None:
        async with ServedListener(handle, tls=world.clients()) as served:
            slow_reader, slow = await served.connect(world.dialler())
            transport: Any = slow.transport
            transport.pause_reading()
            slow.write(frame(1))
            await files.until(1)
            reader, writer = await served.connect(world.dialler())
            for number in range(2, 400):
                writer.write(frame(number, b"quick"))
                assert await answer_to(reader) == (number, b"quick")
            held = [connection._transport.get_write_buffer_size() for connection in served.listener._connections]
            assert max(held) <= WRITE_BUFFER_BYTES + 2 * SLICE_BYTES
            transport.abort()
            writer.close()
            del slow_reader

    run(scenario())


@both_loops
def test_a_file_that_was_truncated_ends_the_tls_connection(files: Files, world: TlsWorld, run: Run) -> None:
    @waits
    async def handle(request: Request) -> Answer:
        file = files.make(0, FILE_BYTES)
        files.cut(1_000)
        return [file]

    async def scenario() -> None:
        async with ServedListener(handle, tls=world.clients()) as served:
            reader, writer = await served.connect(world.dialler())
            writer.write(frame(1))
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            assert size == FILE_BYTES + 4
            with pytest.raises((asyncio.IncompleteReadError, OSError)):
                await reader.readexactly(size)
            writer.close()
        assert files.open_count == 0

    run(scenario())


def test_sendfile_refuses_a_transport_that_encrypts(world: TlsWorld) -> None:
    async def scenario() -> None:
        async with ServedListener(echo, tls=world.clients()) as served:
            _, writer = await served.connect(world.dialler())
            with pytest.raises(AssertionError, match="plain bytes into a stream of TLS"):
                FileSender(writer.transport, -1)
            writer.close()

    asyncio.run(scenario())


class SlowTransport:
    """A transport that takes one slice, and the next one only when the test permits it."""

    def __init__(self) -> None:
        self.taken = bytearray()
        self.writable = asyncio.Event()
        self.has_gone = False

    def write(self, data: memoryview) -> None:
        self.taken += data
        self.writable.clear()

    def is_closing(self) -> bool:
        return self.has_gone


def test_a_slice_is_sent_only_after_the_previous_one_was_written(files: Files) -> None:
    async def scenario() -> None:
        transport = SlowTransport()
        file = files.make(10, 3 * SLICE_BYTES)
        sending = asyncio.create_task(SliceSender().send([file], transport, transport.writable))
        for count in (1, 2, 3):
            await settle()
            assert transport.taken == CONTENT[10 : 10 + count * SLICE_BYTES]
            transport.writable.set()
        await sending
        file.close()

    asyncio.run(scenario())


def test_no_further_slice_is_read_for_a_client_that_has_disconnected(files: Files) -> None:
    async def scenario() -> None:
        transport = SlowTransport()
        file = files.make(0, 3 * SLICE_BYTES)
        sending = asyncio.create_task(SliceSender().send([file], transport, transport.writable))
        await settle()
        transport.has_gone = True
        transport.writable.set()
        with pytest.raises(ConnectionResetError):
            await sending
        assert len(transport.taken) == SLICE_BYTES
        file.close()

    asyncio.run(scenario())
