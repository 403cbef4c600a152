"""Tests that calls to the process's own listeners stay in it, and have what they would have over gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from klamm.rpc.call_metadata import CALL_METADATA
from klamm.rpc.options import SERVERS, ChannelOptions
from klamm.rpc.status import CallFailed, Status
from klamm.wire.service import Method
from klamm.wire.v1 import coordinator_pb2 as pb
from klamm.wire.v1.coordinator_rpc import COORDINATOR
from klamm_server.net.listeners import CAME_BY
from klamm_server.rpc.local_transport import LocalTransport
from klamm_server.rpc.transport import Handler, ServerLimits
from klamm_server.security.peer_principals import LOGGED_IN
from klamm_server.security.session import CALLER
from tests.support.byte_streams import a_stream
from tests.support.callers import session_of
from tests.support.waiting import patience

METHODS = {method.name: method for method in COORDINATOR.methods}
HEARTBEAT = METHODS["heartbeat"]
LIMITS = ServerLimits(receive_max_bytes=100, concurrent_calls_max=10, connections_max=10)
REQUEST = pb.HeartbeatRequest(group_id="g")
ANSWER = pb.MemberResponse(error_message="seen")


class Beyond:
    """Another transport, which notes what is called, and answers each call with its address."""

    def __init__(self) -> None:
        self.listened: list[tuple[str, int]] = []
        self.is_stopped = False

    def channel(self, address: str, options: ChannelOptions) -> Any:
        return BeyondChannel(address)

    def server(self, limits: ServerLimits) -> Any:
        return self

    async def listen(self, bind: str, port: int, *_: Any) -> int:
        self.listened.append((bind, port))
        return port or 5_000

    async def report_health(self, is_serving: bool) -> None:
        """Does nothing."""

    async def stop(self, grace_s: float) -> None:
        self.is_stopped = True


class BeyondChannel:
    def __init__(self, address: str) -> None:
        self.address = address

    def unary(self, method: Method) -> Callable[[Any, int], asyncio.Task[Any]]:
        async def answer() -> str:
            return self.address

        return lambda request, timeout_ms: asyncio.create_task(answer())

    async def close(self) -> None:
        """Does nothing."""


async def listening(answer: Callable[..., Any], method: Method = HEARTBEAT, callers: Any = None) -> Any:
    """Returns a transport with one listener at port 5,000, and the server."""
    transport = LocalTransport(Beyond())
    server = transport.server(LIMITS)
    await server.listen("", 0, "SERVERS", [Handler(method, answer)], None, callers)
    return transport, server


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(patience()):
            await scenario()

    asyncio.run(bounded())


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_a_call_to_an_own_listener_gets_the_message_itself_and_what_gRPC_would_say(host: str) -> None:
    seen: list[Any] = []

    async def answer(request: Any, context: Any) -> Any:
        seen.extend((request, context.peer(), context.invocation_metadata(), context.auth_context()))
        seen.extend((CAME_BY.get(), CALLER.get(), LOGGED_IN.get(), CALL_METADATA.get()))
        context.add_done_callback(lambda _: seen.append("done"))
        return ANSWER

    async def scenario() -> None:
        transport, _ = await listening(answer)
        caller, metadata = CALLER.set(session_of()), CALL_METADATA.set((("k", "v"),))
        LOGGED_IN.set("User:alice")
        call = transport.channel(f"{host}:5000", SERVERS).unary(HEARTBEAT)(REQUEST, 60_000)
        assert await call is ANSWER
        CALLER.reset(caller)
        CALL_METADATA.reset(metadata)

    run(scenario)
    assert seen[0] is REQUEST
    assert seen[1:] == ["ipv4:127.0.0.1:0", (("k", "v"),), {}, "SERVERS", None, None, (), "done"]


def test_other_addresses_and_listeners_with_logins_are_called_by_the_other_transport() -> None:
    async def answer(request: Any, context: Any) -> Any:
        return ANSWER

    async def scenario() -> None:
        transport, _ = await listening(answer)
        assert await transport.channel("127.0.0.1:5001", SERVERS).unary(HEARTBEAT)(REQUEST, 60_000) == "127.0.0.1:5001"
        channel = transport.channel("host.example:9", SERVERS)
        assert await channel.unary(HEARTBEAT)(REQUEST, 60_000) == "host.example:9"
        transport.add_address("SERVERS", "host.example:9")
        assert await channel.unary(HEARTBEAT)(REQUEST, 60_000) is ANSWER
        transport, _ = await listening(answer, callers=object())
        assert await transport.channel("127.0.0.1:5000", SERVERS).unary(HEARTBEAT)(REQUEST, 60_000) == "127.0.0.1:5000"

    run(scenario)


async def fails(_request: Any, _context: Any) -> Any:
    raise ValueError("broken")


async def refuses(_request: Any, _context: Any) -> Any:
    raise CallFailed(Status.PERMISSION_DENIED, "no right")


async def hangs(_request: Any, _context: Any) -> Any:
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("answer", "request_", "timeout_ms", "status"),
    [
        (fails, REQUEST, 60_000, Status.INTERNAL),
        (refuses, REQUEST, 60_000, Status.PERMISSION_DENIED),
        (hangs, REQUEST, 1, Status.DEADLINE_EXCEEDED),
        (hangs, pb.HeartbeatRequest(group_id="g" * 200), 60_000, Status.RESOURCE_EXHAUSTED),
    ],
)
def test_a_failed_call_has_gRPCs_status(answer: Any, request_: Any, timeout_ms: int, status: Status) -> None:
    async def scenario() -> None:
        transport, _ = await listening(answer)
        with pytest.raises(CallFailed) as failed:
            await transport.channel("127.0.0.1:5000", SERVERS).unary(HEARTBEAT)(request_, timeout_ms)
        assert failed.value.status is status

    run(scenario)


def test_a_method_without_a_handler_is_not_implemented() -> None:
    async def scenario() -> None:
        transport, _ = await listening(fails)
        with pytest.raises(CallFailed) as failed:
            await transport.channel("127.0.0.1:5000", SERVERS).unary(METHODS["join_group"])(REQUEST, 60_000)
        assert failed.value.status is Status.UNIMPLEMENTED

    run(scenario)


@pytest.mark.parametrize("how", ["the caller", "the call", "the channel"])
def test_a_cancelled_call_cancels_its_handler(how: str) -> None:
    ended: list[str] = []
    begun = asyncio.Event()

    async def answer(request: Any, context: Any) -> Any:
        context.add_done_callback(lambda _: ended.append("done"))
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    async def scenario() -> None:
        transport, _ = await listening(answer)
        channel = transport.channel("127.0.0.1:5000", SERVERS)
        call = channel.unary(HEARTBEAT)(REQUEST, 60_000)

        async def wait() -> None:
            await call

        caller = asyncio.create_task(wait())
        await begun.wait()
        if how == "the caller":
            caller.cancel()
        elif how == "the call":
            call.cancel()
        else:
            await channel.close()
        with pytest.raises(asyncio.CancelledError):
            await caller

    run(scenario)
    assert ended == ["cancelled", "done"]


def test_a_server_that_stops_waits_for_its_calls_and_then_ends_them() -> None:
    async def scenario() -> None:
        finish = asyncio.Event()

        async def answer(request: Any, context: Any) -> Any:
            await finish.wait()
            return ANSWER

        transport, server = await listening(answer)
        channel = transport.channel("127.0.0.1:5000", SERVERS)
        call = channel.unary(HEARTBEAT)(REQUEST, 60_000)
        stopping = asyncio.create_task(server.stop(60))
        await asyncio.sleep(0)
        assert await channel.unary(HEARTBEAT)(REQUEST, 60_000) == "127.0.0.1:5000", "no new call is taken"
        finish.set()
        assert await call is ANSWER
        await stopping

        transport, server = await listening(hangs)
        call = transport.channel("127.0.0.1:5000", SERVERS).unary(HEARTBEAT)(REQUEST, 60_000)
        await asyncio.sleep(0)
        await server.stop(0)
        with pytest.raises(asyncio.CancelledError):
            await call

    run(scenario)


def test_a_stream_passes_messages_both_ways_until_the_handler_ends() -> None:
    method = a_stream(client=True, server=True)

    async def answer(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        async for request in requests:
            if request == b"end":
                return
            yield request * 2

    async def scenario() -> None:
        transport, _ = await listening(answer, method)
        call = transport.channel("127.0.0.1:5000", SERVERS).stream(method)(None, None)
        for data in (b"a", b"b"):
            await call.write(data)
            assert await call.read() == data * 2
        await call.write(b"end")
        assert await call.read() is None
        assert call.done()
        with pytest.raises(CallFailed):
            await call.write(b"late")

    run(scenario)


def test_a_failed_stream_gives_the_answers_before_the_failure() -> None:
    method = a_stream(client=False, server=True)

    async def answer(request: bytes, context: Any) -> AsyncIterator[bytes]:
        yield request
        raise CallFailed(Status.UNAVAILABLE, "gone")

    async def scenario() -> None:
        transport, _ = await listening(answer, method)
        call = transport.channel("127.0.0.1:5000", SERVERS).stream(method)(b"first", None)
        assert await call.read() == b"first"
        with pytest.raises(CallFailed) as failed:
            await call.read()
        assert failed.value.status is Status.UNAVAILABLE

    run(scenario)


def test_a_cancelled_stream_closes_the_generator_of_its_handler() -> None:
    method = a_stream(client=False, server=True)
    closed: list[bool] = []

    async def answer(request: bytes, context: Any) -> AsyncIterator[bytes]:
        try:
            while True:
                yield request
        finally:
            closed.append(True)

    async def scenario() -> None:
        transport, _ = await listening(answer, method)
        channel = transport.channel("127.0.0.1:5000", SERVERS)
        call = channel.stream(method)(b"x", None)
        ended = asyncio.Event()
        call.add_done_callback(lambda _: ended.set())
        assert await call.read() == b"x"
        await channel.close()
        await ended.wait()

    run(scenario)
    assert closed == [True]
