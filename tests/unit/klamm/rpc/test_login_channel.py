"""Tests calls that wait for a login, and for another login after their session has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from klamm.rpc.call_metadata import CALL_METADATA
from klamm.rpc.login import LoginFailed
from klamm.rpc.login_channel import LoginChannel
from klamm.rpc.status import CallFailed, Status
from klamm.wire.v1.broker_rpc import BROKER
from tests.support.login_server import LoginServer, Source

METHODS = {method.name: method for method in BROKER.methods}
TIMEOUT_MS = 60_000


class World:
    """A server and a channel to it."""

    def __init__(self, source: Source | None = None, answer: Callable[[Any], Awaitable[Any]] | None = None) -> None:
        self.server = LoginServer(answer)
        self.source = source or Source()
        self.channel = LoginChannel(self.server, self.source)

    async def ask(self, request: Any = "x", timeout_ms: int = TIMEOUT_MS) -> Any:
        return await self.channel.unary(METHODS["metadata"])(request, timeout_ms)

    def stream(self) -> Any:
        return self.channel.stream(METHODS["produce_stream"])(None, TIMEOUT_MS)


def test_only_the_first_call_logs_in() -> None:
    async def scenario() -> None:
        world = World()
        assert await world.ask(1) == 1
        assert await world.ask(2) == 2
        assert world.source.logins == 1

    asyncio.run(scenario())


def test_concurrent_calls_wait_for_one_login() -> None:
    async def scenario() -> None:
        world = World()
        assert await asyncio.gather(*(world.ask(n) for n in range(20))) == list(range(20))
        assert world.source.logins == 1
        world.server.drop()
        assert await asyncio.gather(*(world.ask(n) for n in range(20))) == list(range(20))
        assert world.source.logins == 2

    asyncio.run(scenario())


def test_a_call_keeps_its_other_metadata() -> None:
    async def scenario() -> None:
        heard = []

        async def answer(request: Any) -> Any:
            heard.append(dict(CALL_METADATA.get()))

        world = World(answer=answer)
        CALL_METADATA.set((("klamm-x", "1"),))
        await world.ask()
        world.server.drop()
        await world.ask()
        assert [each["klamm-x"] for each in heard] == ["1", "1"]
        assert CALL_METADATA.get() == (("klamm-x", "1"),)

    asyncio.run(scenario())


def test_an_unauthenticated_call_is_retried_once() -> None:
    async def scenario() -> None:
        async def refuse(request: Any) -> Any:
            raise CallFailed(Status.UNAUTHENTICATED, "never")

        world = World(answer=refuse)
        with pytest.raises(CallFailed, match="never") as failed:
            await world.ask()
        assert world.server.seen.count("metadata") == 2
        error = failed.value.error("x")
        assert type(error).__name__ == "SaslAuthenticationError"
        assert not error.retriable

    asyncio.run(scenario())


class FastLoop(asyncio.SelectorEventLoop):
    """An event loop whose time a test can move forward."""

    ahead_s = 0.0

    def time(self) -> float:
        return super().time() + self.ahead_s


def test_a_call_is_retried_again_if_the_new_session_has_expired_too() -> None:
    async def scenario() -> None:
        refusals = 3

        async def refuse(request: Any) -> Any:
            nonlocal refusals
            refusals -= 1
            if refusals:
                loop.ahead_s += world.server.lifetime_ms / 1000
                raise CallFailed(Status.UNAUTHENTICATED, "over")
            return request

        world = World(answer=refuse)
        world.server.lifetime_ms = 1
        assert await world.ask("x") == "x"
        assert world.source.logins == 3

    loop = FastLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(scenario())


def test_other_failures_are_raised_without_a_retry() -> None:
    async def scenario() -> None:
        async def refuse(request: Any) -> Any:
            raise CallFailed(Status.UNAVAILABLE, "gone")

        world = World(answer=refuse)
        with pytest.raises(CallFailed, match="gone"):
            await world.ask()
        assert world.server.seen.count("metadata") == 1

    asyncio.run(scenario())


def test_a_failed_login_fails_all_waiting_calls_and_the_next_call_retries() -> None:
    async def scenario() -> None:
        world = World(Source(password="guess"))
        outcomes = await asyncio.gather(*(world.ask() for _ in range(5)), return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [LoginFailed] * 5
        assert world.source.logins == 1
        world.source.password = "s3cret"
        assert await world.ask("y") == "y"

    asyncio.run(scenario())


def test_a_cancelled_caller_does_not_cancel_the_login_of_the_others() -> None:
    async def scenario() -> None:
        world = World()
        first, second = asyncio.create_task(world.ask(1)), asyncio.create_task(world.ask(2))
        await asyncio.sleep(0)
        first.cancel()
        assert await second == 2
        assert first.cancelled()
        assert world.source.logins == 1

    asyncio.run(scenario())


def test_a_login_counts_towards_the_timeout_of_its_call() -> None:
    async def scenario() -> None:
        world = World()

        async def never(request: Any) -> Any:
            await asyncio.Event().wait()

        world.server.handshake = never
        with pytest.raises(CallFailed, match="waiting for the login took too long") as failed:
            await world.ask(timeout_ms=1)
        assert failed.value.status is Status.DEADLINE_EXCEEDED
        # A closed channel has no calls in progress.
        waiting = asyncio.create_task(world.ask())
        await asyncio.sleep(0)
        await world.channel.close()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert world.server.closed

    asyncio.run(scenario())


def test_a_stream_logs_in_first() -> None:
    async def scenario() -> None:
        world = World()
        stream = world.stream()
        ended: list[object] = []
        stream.add_done_callback(ended.append)
        await stream.write("a")
        assert await stream.read() == "a"
        assert await stream.read() is None
        assert not stream.done()
        stream.cancel()
        assert stream.done()
        assert len(ended) == 1

    asyncio.run(scenario())


def test_a_stream_whose_session_has_ended_fails_and_the_next_one_logs_in_again() -> None:
    async def scenario() -> None:
        world = World()
        stream = world.stream()
        await stream.write("a")
        world.server.drop()
        with pytest.raises(CallFailed) as failed:
            await stream.read()
        assert failed.value.status is Status.UNAUTHENTICATED
        again = world.stream()
        await again.write("b")
        assert await again.read() == "b"
        assert world.source.logins == 2

    asyncio.run(scenario())


def test_a_stream_whose_login_fails_raises_and_is_done() -> None:
    async def scenario() -> None:
        world = World(Source(password="guess"))
        stream = world.stream()
        over = asyncio.Event()
        stream.add_done_callback(lambda _: over.set())
        with pytest.raises(LoginFailed):
            await stream.read()
        await over.wait()
        assert stream.done()

    asyncio.run(scenario())


def test_a_stream_cancelled_before_its_start_is_not_opened() -> None:
    async def scenario() -> None:
        world = World()
        stream = world.stream()
        stream.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stream.write("a")
        assert stream.done()
        assert "produce_stream" not in world.server.seen

    asyncio.run(scenario())
