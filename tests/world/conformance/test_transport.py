"""Tests that the transport of a simulated world behaves as gRPC does where this project depends on it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from klamm.rpc.call_metadata import CALL_METADATA
from klamm.rpc.status import CallFailed, Status
from klamm.wire.v1 import coordinator_pb2 as pb
from klamm.wire.v1.coordinator_rpc import COORDINATOR
from klamm_server.net.listeners import CAME_BY
from klamm_server.rpc.transport import Handler
from tests.support.byte_streams import a_stream
from tests.support.waiting import until
from tests.world.conformance.wires import LISTENER, Client, run_in_a_world, run_over_grpc

METHODS = {method.name: method for method in COORDINATOR.methods}
HEARTBEAT = METHODS["heartbeat"]
REQUEST = pb.HeartbeatRequest(group_id="g")
ANSWER = pb.MemberResponse(error_message="seen")
LONG_MS = 60_000

both = pytest.mark.parametrize("run", [run_over_grpc, run_in_a_world])


async def hangs(_request: Any, _context: Any) -> Any:
    await asyncio.Event().wait()


@both
def test_a_call_gets_its_answer_and_the_handler_the_callers_metadata_and_address(run: Callable[..., None]) -> None:
    seen: list[Any] = []

    async def answer(request: Any, context: Any) -> Any:
        seen.extend((request, CAME_BY.get(), context.peer().partition(":")[0]))
        seen.extend(pair for pair in context.invocation_metadata() if pair[0] == "k")
        context.add_done_callback(lambda _: seen.append("done"))
        return ANSWER

    async def scenario(client: Client) -> None:
        CALL_METADATA.set((("k", "v"),))
        assert await client.channel().unary(HEARTBEAT)(REQUEST, LONG_MS) == ANSWER
        await until(lambda: seen[-1] == "done")

    run(scenario, [Handler(HEARTBEAT, answer)])
    assert seen == [REQUEST, LISTENER, "ipv4", ("k", "v"), "done"]


async def fails(_request: Any, _context: Any) -> Any:
    raise ValueError("broken")


async def refuses(_request: Any, _context: Any) -> Any:
    raise CallFailed(Status.PERMISSION_DENIED, "no right")


async def answers_too_much(_request: Any, _context: Any) -> Any:
    return pb.MemberResponse(error_message="x" * 200_000)


@both
@pytest.mark.parametrize(
    ("answer", "request_", "timeout_ms", "status", "details"),
    [
        (fails, REQUEST, LONG_MS, Status.INTERNAL, "broken"),
        (refuses, REQUEST, LONG_MS, Status.PERMISSION_DENIED, "no right"),
        (hangs, REQUEST, 20, Status.DEADLINE_EXCEEDED, "Deadline Exceeded"),
        (hangs, pb.HeartbeatRequest(group_id="g" * 200_000), LONG_MS, Status.RESOURCE_EXHAUSTED, "larger than max"),
        (answers_too_much, REQUEST, LONG_MS, Status.RESOURCE_EXHAUSTED, "larger than max"),
    ],
)
def test_a_failed_call_has_its_status(
    run: Callable[..., None], answer: Any, request_: Any, timeout_ms: int, status: Status, details: str
) -> None:
    async def scenario(client: Client) -> None:
        with pytest.raises(CallFailed, match=details) as failed:
            await client.channel().unary(HEARTBEAT)(request_, timeout_ms)
        assert failed.value.status is status

    run(scenario, [Handler(HEARTBEAT, answer)])


@both
@pytest.mark.parametrize("text", ["another server has it", None])
def test_a_method_without_a_handler_is_not_implemented(run: Callable[..., None], text: str | None) -> None:
    async def scenario(client: Client) -> None:
        with pytest.raises(CallFailed, match=text or "found") as failed:
            await client.channel().unary(METHODS["join_group"])(REQUEST, LONG_MS)
        assert failed.value.status is Status.UNIMPLEMENTED

    run(scenario, [Handler(HEARTBEAT, hangs)], lambda path, listener: text)


@both
@pytest.mark.parametrize("how", ["the caller", "the call", "the channel"])
def test_a_cancelled_call_cancels_its_handler(run: Callable[..., None], how: str) -> None:
    seen: list[str] = []

    async def answer(request: Any, context: Any) -> Any:
        context.add_done_callback(lambda _: seen.append("done"))
        seen.append("begun")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    async def scenario(client: Client) -> None:
        channel = client.channel()
        call = channel.unary(HEARTBEAT)(REQUEST, LONG_MS)

        async def wait() -> None:
            await call

        caller = asyncio.create_task(wait())
        await until(lambda: bool(seen))
        if how == "the caller":
            caller.cancel()
        elif how == "the call":
            call.cancel()
        else:
            await channel.close()
        with pytest.raises(asyncio.CancelledError):
            await caller
        await until(lambda: len(seen) == 3)

    run(scenario, [Handler(HEARTBEAT, answer)])
    assert sorted(seen) == ["begun", "cancelled", "done"]


@both
def test_a_stream_passes_messages_both_ways_until_the_handler_ends(run: Callable[..., None]) -> None:
    method = a_stream(client=True, server=True)

    async def answer(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        async for request in requests:
            if request == b"end":
                return
            yield request * 2

    async def scenario(client: Client) -> None:
        call = client.channel().stream(method)(None, None)
        for data in (b"a", b"b"):
            await call.write(data)
            assert await call.read() == data * 2
        await call.write(b"end")
        assert await call.read() is None
        assert call.done()
        with pytest.raises(CallFailed):
            await call.write(b"late")

    run(scenario, [Handler(method, answer)])


@both
def test_a_failed_stream_gives_the_answers_before_the_failure(run: Callable[..., None]) -> None:
    method = a_stream(client=False, server=True)

    async def answer(request: bytes, context: Any) -> AsyncIterator[bytes]:
        yield request
        raise CallFailed(Status.NOT_FOUND, "gone")

    async def scenario(client: Client) -> None:
        call = client.channel().stream(method)(b"first", None)
        assert await call.read() == b"first"
        with pytest.raises(CallFailed, match="gone") as failed:
            await call.read()
        assert failed.value.status is Status.NOT_FOUND

    run(scenario, [Handler(method, answer)])


@both
def test_a_stream_that_is_cancelled_ends_the_generator_of_its_handler(run: Callable[..., None]) -> None:
    method = a_stream(client=False, server=True)
    closed: list[bool] = []

    async def answer(request: bytes, context: Any) -> AsyncIterator[bytes]:
        try:
            yield request
            await asyncio.Event().wait()
        finally:
            closed.append(True)

    async def scenario(client: Client) -> None:
        channel = client.channel()
        call = channel.stream(method)(b"x", None)
        ended = asyncio.Event()
        call.add_done_callback(lambda _: ended.set())
        assert await call.read() == b"x"
        await channel.close()
        await ended.wait()
        await until(lambda: bool(closed))

    run(scenario, [Handler(method, answer)])


@both
def test_a_sender_waits_while_its_messages_are_not_read(run: Callable[..., None]) -> None:
    method = a_stream(client=False, server=True)
    sent: list[int] = []

    async def answer(request: bytes, context: Any) -> AsyncIterator[bytes]:
        for number in range(1_000):
            sent.append(number)
            yield bytes(65_536)

    async def scenario(client: Client) -> None:
        call = client.channel().stream(method)(b"x", None)
        assert await call.read() == bytes(65_536)
        for _ in range(100):
            await asyncio.sleep(0.002)
        assert len(sent) < 1_000
        read = 1
        while await call.read() is not None:
            read += 1
        assert read == 1_000

    run(scenario, [Handler(method, answer)])


@both
def test_a_server_that_stops_waits_for_its_calls_and_takes_no_new_ones(run: Callable[..., None]) -> None:
    begun: list[bool] = []

    async def answer(request: Any, context: Any) -> Any:
        begun.append(True)
        await asyncio.sleep(0.5)
        return ANSWER

    async def scenario(client: Client) -> None:
        channel = client.channel()
        call = channel.unary(HEARTBEAT)(REQUEST, LONG_MS)
        await until(lambda: bool(begun))
        stopping = asyncio.create_task(client.stop_server(60))
        assert await call == ANSWER
        await stopping
        with pytest.raises(CallFailed) as failed:
            await channel.unary(HEARTBEAT)(REQUEST, LONG_MS)
        assert failed.value.status is Status.UNAVAILABLE

    run(scenario, [Handler(HEARTBEAT, answer)])


@both
def test_calls_to_a_port_where_nobody_listens_are_refused(run: Callable[..., None]) -> None:
    async def scenario(client: Client) -> None:
        await client.stop_server(0)
        channel = client.channel()
        for _ in range(2):
            with pytest.raises(CallFailed, match="refused") as failed:
                await channel.unary(HEARTBEAT)(REQUEST, LONG_MS)
            assert failed.value.status is Status.UNAVAILABLE
        await channel.close()

    run(scenario)
