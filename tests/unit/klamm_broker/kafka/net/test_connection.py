"""Tests a connection over a real socket: frames in any pieces, answers in order, and every reason to end it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import re
import socket
import struct
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any

import grpc
import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from klamm.setting import INT_MAX
from klamm_broker.io import metrics
from klamm_broker.kafka.api import ApiKey
from klamm_broker.kafka.codec import messages
from klamm_broker.kafka.codec.wire import MalformedRequestError
from klamm_broker.kafka.net import refused_client
from klamm_broker.kafka.net.connection import TURN_REQUESTS_MAX, Answer, KafkaConnection, UnansweredError
from klamm_broker.kafka.net.connection_fairness import TURN_MAX_S, ConnectionFairness
from klamm_broker.kafka.net.frame_buffer import BUSY_BUFFER_BYTES, FIRST_BUFFER_BYTES, GROWTH
from klamm_broker.kafka.net.listener import ConnectionLimit
from klamm_broker.kafka.requests import Request, parse_request
from klamm_broker.kafka.served_apis import SPOKEN
from klamm_server.runtime.waiting import Waiting
from tests.support.kafka_listener import (
    HEARTBEAT_V0,
    REQUEST_MAX_BYTES,
    ServedListener,
    answer_to,
    echo,
    echo_by_turns,
    echo_in_time,
    frame,
    waits,
)
from tests.support.waiting import until


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_grpc_client_at_the_kafka_listener_is_told_the_grpc_address(
    run: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with ServedListener(echo) as served:
            served.listener.grpc_addresses = "broker-1:9094"
            async with grpc.aio.insecure_channel(f"127.0.0.1:{served.port}") as channel:
                for _ in range(3):
                    with pytest.raises(grpc.aio.AioRpcError) as refused:
                        await channel.unary_unary("/klamm.v1.Broker/Metadata")(b"x" * 30_000, timeout=60)
                    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
                    assert refused.value.details() == (
                        "this is a Kafka listener of Klamm; clients of the gRPC API connect to broker-1:9094"
                    )
            reader, writer = await served.connect()
            writer.write(frame(1, b"ab"))
            assert await answer_to(reader) == (1, b"ab"), "Kafka clients are served"
            writer.close()

    run(scenario())
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert re.fullmatch(
        r"a gRPC client from 127\.0\.0\.1 connected to the Kafka listener 127\.0\.0\.1:\d+: this is a Kafka listener of"
        r" Klamm; clients of the gRPC API connect to broker-1:9094",
        line,
    )


@pytest.mark.parametrize(
    ("first", "told", "line"),
    [
        (
            b"GET /topics HTTP/1.1\r\n\r\n",
            b"HTTP/1.1 400 Bad Request\r\n",
            "an HTTP client from 127.0.0.1 connected to",
        ),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01", b"", "a TLS client from 127.0.0.1 connected to"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", b"", "client=127.0.0.1 connection closed: a frame of 1397966893 bytes"),
        (struct.pack(">i", REQUEST_MAX_BYTES + 1), b"", "client=127.0.0.1 connection closed: a frame of 1000001 bytes"),
        (frame(1, b"ab") + b"GET / HTTP/1.1\r\n", b"", "client=127.0.0.1 connection closed: a frame of 1195725856"),
    ],
)
def test_clients_of_other_protocols_are_logged_and_disconnected(
    first: bytes, told: bytes, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with ServedListener(echo) as served:
            reader, writer = await served.connect()
            writer.write(first)
            try:
                assert (await reader.read()).startswith(told)
            except ConnectionResetError:
                assert not told
            writer.close()

    asyncio.run(scenario())
    (found,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert found.startswith(line)


def test_a_refused_grpc_client_that_stays_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refused_client, "REFUSAL_S", 0.0)

    async def scenario() -> None:
        async with ServedListener(echo) as served:
            reader, writer = await served.connect()
            writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == bytes(3) + b"\x04\0" + bytes(4)
            writer.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("handle", [echo, echo_in_time, echo_by_turns])
@pytest.mark.parametrize("piece_bytes", [1, 7, 100_000])
def test_frames_arrive_in_any_pieces_and_are_answered_in_order(
    piece_bytes: int, handle: Callable[[Request], Answer | Waiting[Answer]]
) -> None:
    async def scenario() -> None:
        async with ServedListener(handle) as served:
            reader, writer = await served.connect()
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

        @waits
        async def handle(request: Request) -> Answer:
            under_way.append(request.correlation_id)
            if len(under_way) == 2:
                both.set()
            await go_on.wait()
            return [b""]

        async with ServedListener(handle) as served:
            reader, writer = await served.connect()
            writer.write(frame(1) + frame(2))
            _, other = await served.connect()
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
    ],
    ids=["too large", "empty", "negative", "no header", "unknown API", "unknown version", "short client id"],
)
def test_a_malformed_frame_ends_its_connection_and_no_other(data: bytes) -> None:
    async def scenario() -> None:
        async with ServedListener(echo) as served:
            good_reader, good = await served.connect()
            reader, writer = await served.connect()
            writer.write(data)
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await reader.readexactly(1)
            good.write(frame(7, b"still here"))
            assert await answer_to(good_reader) == (7, b"still here")
            good.close()
            writer.close()

    asyncio.run(scenario())


def broken(request: Request) -> Answer:
    assert request.correlation_id != 1, "broken"
    return [b"well"]


@waits
async def broken_in_time(request: Request) -> Answer:
    return broken(request)


@pytest.mark.parametrize("handle", [broken, broken_in_time])
def test_an_exception_in_a_handler_ends_its_connection_and_no_other(
    handle: Callable[[Request], Answer | Waiting[Answer]],
) -> None:

    async def scenario() -> None:
        async with ServedListener(handle) as served:
            good_reader, good = await served.connect()
            reader, writer = await served.connect()
            writer.write(frame(1))
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await reader.readexactly(1)
            good.write(frame(2))
            assert await answer_to(good_reader) == (2, b"well")
            good.close()
            writer.close()

    asyncio.run(scenario())


@waits
async def forwarded(request: Request) -> Answer:
    await asyncio.Event().wait()
    return []


def forwarded_further(request: Request) -> Waiting[Answer]:
    """Returns an answer that is not awaited yet, like that of a produce that waits for replicas."""

    async def answer(further: Waiting[Answer]) -> Answer:
        return await further

    return Waiting(answer(forwarded(request)))


def run_on(loop_of: str, scenario: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=None if loop_of == "asyncio" else uvloop.new_event_loop) as runner:
        runner.run(scenario)


class OneWrite:
    """A transport that counts the bytes written and can stop accepting them."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.is_reading = self.is_open = True

    def get_extra_info(self, name: str) -> Any:
        return ("peer", 1)

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def writelines(self, parts: Sequence[bytes]) -> None:
        self.write(b"".join(parts))

    def is_closing(self) -> bool:
        return not self.is_open

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def abort(self) -> None:
        self.is_open = False


def feed(connection: KafkaConnection, data: bytes) -> None:
    """Passes bytes to the connection as one read. They must fit into its buffer."""
    room = connection.get_buffer(-1)
    assert len(data) <= len(room)
    room[: len(data)] = data
    connection.buffer_updated(len(data))


@contextlib.asynccontextmanager
async def connected(served: ServedListener) -> AsyncIterator[tuple[KafkaConnection, OneWrite]]:
    """Yields a connection whose reads and writes the test controls."""
    connection, transport = KafkaConnection(served.listener), OneWrite()
    connection.connection_made(transport)
    try:
        yield connection, transport
    finally:
        connection.connection_lost(None)
        await connection.closed()


def test_requests_of_one_read_are_answered_with_one_write() -> None:
    async def scenario() -> None:
        async with ServedListener(echo) as served, connected(served) as (connection, transport):
            feed(connection, b"".join(frame(number, b"abc") for number in range(5)))
            (written,) = transport.writes
            assert written == b"".join(struct.pack(">ii", 7, number) + b"abc" for number in range(5))

    asyncio.run(scenario())


def test_a_request_queued_behind_a_waiting_one_is_served_before_later_ones_of_others() -> None:
    """The client gets its answer when it is written, and sends its next request in the same turn of the loop."""
    served: list[int] = []

    def handle(request: Request) -> Answer | Waiting[Answer]:
        served.append(request.correlation_id)
        return echo_in_time(request) if request.correlation_id == 1 else echo(request)

    async def scenario() -> None:
        async with (
            ServedListener(handle) as listening,
            connected(listening) as (first, transport),
            connected(listening) as (second, _),
        ):
            feed(first, frame(1, b"a"))
            for _ in range(10):
                if transport.writes:
                    break
                await asyncio.sleep(0)
            feed(first, frame(2, b"a"))
            feed(second, frame(3, b"a"))
            await until(lambda: len(served) == 3)
        assert served == [1, 2, 3]

    asyncio.run(scenario())


def test_a_client_is_served_a_bounded_number_of_requests_in_a_turn_of_the_loop() -> None:
    async def scenario() -> None:
        async with ServedListener(echo) as served, connected(served) as (connection, transport):
            large = frame(0, bytes(3_000))
            feed(connection, large[:2_048])
            feed(connection, large[2_048:])
            many = [frame(number, b"x") for number in range(2 * TURN_REQUESTS_MAX + 1)]
            feed(connection, b"".join(many))
            assert sum(map(len, transport.writes[1:])) == TURN_REQUESTS_MAX * 9
            assert not transport.is_reading
            await asyncio.sleep(0)
            assert sum(map(len, transport.writes[1:])) == 2 * TURN_REQUESTS_MAX * 9
            await asyncio.sleep(0)
            assert sum(map(len, transport.writes[1:])) == len(many) * 9
            assert transport.is_reading

    asyncio.run(scenario())


def test_requests_of_many_clients_take_a_bounded_part_of_a_turn_in_order_of_arrival() -> None:
    """The loop's other work, such as the broker's heartbeats, runs in between."""

    async def scenario() -> None:
        now_s = 1.0
        served: list[int] = []

        def slow(request: Request) -> Answer:
            nonlocal now_s
            now_s += TURN_MAX_S / 3.9
            served.append(request.correlation_id)
            return [b"x"]

        async with ServedListener(slow) as listening, contextlib.AsyncExitStack() as connections:
            listening.listener.turns = ConnectionFairness(lambda: now_s)
            clients = [(await connections.enter_async_context(connected(listening)))[0] for _ in range(10)]
            for number, client in enumerate(clients[:9]):
                feed(client, frame(number))
            assert served == [0, 1, 2, 3]
            await asyncio.sleep(0)
            # A request that arrives now waits behind the requests that wait already.
            feed(clients[9], frame(9))
            assert served == list(range(8))
            await asyncio.sleep(0)
            assert served == list(range(10))

    asyncio.run(scenario())


def test_a_client_that_disconnects_while_its_request_waits_is_not_served() -> None:
    async def scenario() -> None:
        now_s = 1.0

        def slow(request: Request) -> Answer:
            nonlocal now_s
            now_s += TURN_MAX_S
            return [b"x"]

        async with ServedListener(slow) as served:
            served.listener.turns = ConnectionFairness(lambda: now_s)
            async with connected(served) as (first, _), connected(served) as (second, transport):
                feed(first, frame(1))
                feed(second, frame(2))
                assert not transport.is_reading
            await asyncio.sleep(0)
            assert transport.writes == []

    asyncio.run(scenario())


def test_connections_are_accepted_one_in_a_turn_of_the_services_loop() -> None:
    """Thousands of waiting connections do not block the loop, because uvloop accepts one of them per turn."""

    async def scenario() -> None:
        async with ServedListener(echo, connections_max=100) as served, contextlib.AsyncExitStack() as sockets:
            for _ in range(50):
                one = sockets.enter_context(socket.socket())
                one.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    one.connect(("127.0.0.1", served.port))
            accepted = 0
            while accepted < 50:
                await asyncio.sleep(0)
                assert len(served.listener) <= accepted + 1
                accepted = len(served.listener)

    run_on("uvloop", scenario())


def test_a_client_that_does_not_read_is_not_served_and_its_requests_count_as_memory() -> None:
    async def scenario() -> None:
        async with ServedListener(echo) as served, connected(served) as (connection, transport):
            write = transport.write

            def write_and_fill(data: bytes) -> None:
                write(data)
                connection.pause_writing()

            transport.write = write_and_fill
            feed(connection, frame(1, b"abc") + frame(2, b"de"))
            assert served.memory.held_bytes == 5
            feed(connection, frame(3, b"f"))
            await asyncio.sleep(0)
            assert len(transport.writes) == 1
            connection.resume_writing()
            assert served.memory.held_bytes == 0
            await asyncio.sleep(0)
            assert transport.writes[1:] == [struct.pack(">ii", 5, 3) + b"f"]

    asyncio.run(scenario())


def test_a_request_waits_while_other_requests_hold_all_memory() -> None:
    async def scenario() -> None:
        large = frame(3, bytes(2 * BUSY_BUFFER_BYTES))
        async with (
            ServedListener(echo, memory_bytes=100) as served,
            connected(served) as (first, transport),
            connected(served) as (second, other_transport),
        ):
            served.memory.take(95)
            feed(first, frame(1, b"hello") + frame(2, b"again"))
            feed(second, large[:1_000])
            assert not second.is_busy
            feed(second, large[1_000:BUSY_BUFFER_BYTES])
            assert first.is_busy
            assert second.is_busy
            # The tasks of both requests ask for memory.
            await asyncio.sleep(0)
            served.memory.give_back(95)
            for _ in range(10):
                await asyncio.sleep(0)
            # Meanwhile the large request holds all memory.
            assert transport.writes == [struct.pack(">ii", 9, 1) + b"hello"]
            feed(second, large[BUSY_BUFFER_BYTES:])
            for _ in range(10):
                await asyncio.sleep(0)
            assert other_transport.writes == [struct.pack(">ii", len(large) - 10, 3) + large[14:]]
            assert transport.writes[1:] == [struct.pack(">ii", 9, 2) + b"again"]

    asyncio.run(scenario())


def test_a_stalled_frame_is_disconnected_while_others_wait_for_its_memory(
    caplog: pytest.LogCaptureFixture,
) -> None:
    large = frame(1, bytes(4 * BUSY_BUFFER_BYTES))

    async def scenario() -> None:
        async with ServedListener(echo, memory_bytes=len(large)) as served, connected(served) as (waiting, transport):
            async with connected(served) as (stalled, stalled_transport):
                feed(stalled, large[:1_000])
                feed(stalled, large[1_000:BUSY_BUFFER_BYTES])
                for _ in range(3):
                    served.listener.cut_stalled_frames()
                assert stalled_transport.is_open, "nobody waits"
                feed(waiting, frame(2, b"hello"))
                assert waiting.is_busy
                await asyncio.sleep(0)
                served.listener.cut_stalled_frames()
                feed(stalled, large[BUSY_BUFFER_BYTES : 2 * BUSY_BUFFER_BYTES])
                served.listener.cut_stalled_frames()
                assert stalled_transport.is_open, "it goes on"
                feed(stalled, large[2 * BUSY_BUFFER_BYTES :][:100])
                served.listener.cut_stalled_frames()
                assert not stalled_transport.is_open
            for _ in range(10):
                await asyncio.sleep(0)
            assert transport.writes == [struct.pack(">ii", 9, 2) + b"hello"]

    asyncio.run(scenario())
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert line.endswith(
        "connection closed: the client stopped sending a request while other requests waited for memory"
    )


def test_a_frame_takes_memory_for_its_received_bytes_and_not_for_its_announced_size() -> None:
    async def scenario() -> None:
        async with (
            ServedListener(echo, request_max_bytes=3 * GROWTH * BUSY_BUFFER_BYTES) as served,
            connected(served) as (connection, transport),
        ):
            large = frame(1, bytes(2 * GROWTH * BUSY_BUFFER_BYTES))
            feed(connection, large[:4])
            assert connection.buffer_bytes == BUSY_BUFFER_BYTES
            assert served.memory.held_bytes == 0
            arrived = 4
            while arrived < len(large):
                piece = large[arrived : arrived + min(1_500, len(connection.get_buffer(-1)))]
                arrived += len(piece)
                feed(connection, piece)
                assert connection.buffer_bytes <= max(BUSY_BUFFER_BYTES, GROWTH * arrived)
            assert b"".join(transport.writes)[8:] == large[14:]
            assert connection.buffer_bytes == BUSY_BUFFER_BYTES

    asyncio.run(scenario())


@pytest.mark.parametrize("handle", [forwarded, forwarded_further])
def test_a_client_that_disconnects_right_after_its_request_holds_no_memory(
    handle: Callable[[Request], Waiting[Answer]],
) -> None:
    async def scenario() -> None:
        async with ServedListener(handle) as served:
            async with connected(served) as (connection, _):
                feed(connection, frame(1, b"abc"))
            assert served.memory.held_bytes == 0
        gc.collect()

    asyncio.run(scenario())


@pytest.mark.parametrize("loop_of", ["asyncio", "uvloop"])
def test_only_whole_answers_are_sent_to_a_client_that_closed_its_side(loop_of: str) -> None:
    async def scenario() -> None:
        async with ServedListener(echo_by_turns) as served:
            for count in (1, 700, 5_000):
                reader, writer = await served.connect()
                writer.write(b"".join(frame(number, b"x" * 50) for number in range(count)))
                writer.write_eof()
                answered = await reader.read(-1) if count < 5_000 else await reader.readexactly(58)
                assert len(answered) % 58 == 0
                writer.close()

    run_on(loop_of, scenario())


@pytest.mark.parametrize("in_time", [False, True])
def test_a_failed_request_without_an_answer_closes_the_connection(
    in_time: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    @waits
    async def fail_in_time(request: Request) -> Answer:
        raise UnansweredError("the produce failed")

    def fail(request: Request) -> Answer:
        raise UnansweredError("the produce failed")

    async def scenario() -> None:
        async with ServedListener(fail_in_time if in_time else fail) as served:
            reader, writer = await served.connect()
            writer.write(frame(1))
            with contextlib.suppress(ConnectionResetError):
                assert not await reader.read()
            writer.close()

    asyncio.run(scenario())
    (line,) = [record for record in caplog.records if "connection closed" in record.getMessage()]
    assert (line.levelname, line.getMessage()) == ("INFO", "client=127.0.0.1 connection closed: the produce failed")


@pytest.mark.parametrize("loop_of", ["asyncio", "uvloop"])
def test_a_client_that_disconnects_before_its_answer_is_not_logged(
    loop_of: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        @waits
        async def answer(request: Request) -> Answer:
            (connection,) = served.listener.connections
            connection.close()
            await asyncio.sleep(0)  # the transport is closed, and the next turn of the loop cancels this task
            return [b"x"]

        async with ServedListener(answer) as served:
            reader, writer = await served.connect()
            writer.write(frame(1))
            with contextlib.suppress(ConnectionError):
                assert not await reader.read()
            writer.close()

    run_on(loop_of, scenario())
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_more_than_max_connections_are_closed_at_once() -> None:
    async def scenario() -> None:
        async with ServedListener(echo, connections_max=1) as served:
            first_reader, first = await served.connect()
            first.write(frame(1, b"a"))
            assert await answer_to(first_reader) == (1, b"a")
            reader, writer = await served.connect()
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await reader.readexactly(1)
            writer.close()
            first.close()

    asyncio.run(scenario())


def test_a_listeners_own_connection_limit_leaves_room_for_other_listeners() -> None:
    whole = ConnectionLimit(3)
    narrow, wide = ConnectionLimit(1, whole), ConnectionLimit(INT_MAX, whole)
    assert narrow.take() == ""
    assert narrow.take() == "max.connections of this listener=1"
    assert [wide.take(), wide.take()] == ["", ""]
    assert wide.take() == "max.connections=3"
    narrow.give_back()
    assert wide.take() == ""
    assert narrow.take() == "max.connections=3"


BY_HAND = {ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA, ApiKey.API_VERSIONS}


def test_an_idle_connection_shrinks_its_buffer_and_is_then_closed() -> None:
    async def scenario() -> None:
        async with ServedListener(echo) as served:
            reader, writer = await served.connect()
            writer.write(frame(1, b"hello"))
            assert await answer_to(reader) == (1, b"hello")
            (connection,) = served.listener.connections
            assert connection.buffer_bytes == FIRST_BUFFER_BYTES
            many = [b"x" * 100] * 50 + [b"y" * 3 * BUSY_BUFFER_BYTES]
            for number, body in enumerate(many):
                writer.write(frame(number, body))
            for number, body in enumerate(many):
                assert await answer_to(reader) == (number, body)
            assert connection.buffer_bytes == BUSY_BUFFER_BYTES
            served.listener.close_idle_connections(connection.last_request_ms + 10_000)
            assert connection.buffer_bytes == BUSY_BUFFER_BYTES
            served.listener.close_idle_connections(connection.last_request_ms + 20_000)
            assert connection.buffer_bytes == FIRST_BUFFER_BYTES
            writer.write(frame(9, b"still here"))
            assert await answer_to(reader) == (9, b"still here")
            served.listener.close_idle_connections(connection.last_request_ms + 70_000)
            assert await reader.read() == b""
            writer.close()

    asyncio.run(scenario())


def test_requests_of_unknown_versions_share_one_metric() -> None:
    async def scenario() -> None:
        async with ServedListener(echo) as served:
            reader, writer = await served.connect()
            for version in (100, 101, 31_000):
                message = HEARTBEAT_V0.pack(ApiKey.API_VERSIONS, version, version, -1) + b"\x00x"
                writer.write(struct.pack(">i", len(message)) + message)
                assert (await answer_to(reader))[0] == version
            writer.close()

    def counted() -> set[str]:
        return {
            version for (api, version), _ in metrics.KAFKA_REQUESTS.instruments() if api == ApiKey.API_VERSIONS.name
        }

    before = counted()  # by other tests of this process
    asyncio.run(scenario())
    assert counted() == before | {"unknown"}


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
