"""Tests that the channel switches to another controller while calls are in progress."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from klamm.errors import BrokerError
from klamm.rpc.options import ChannelOptions
from klamm.rpc.status import CallFailed, Status
from klamm.wire.service import Method
from klamm.wire.v1.controller_pb2 import CreateTopicsRequest, CreateTopicsResponse
from klamm.wire.v1.controller_rpc import ADMIN, AdminStub
from klamm_server.rpc.controller_channel import ControllerChannel
from klamm_server.rpc.controllers import Controllers
from tests.support.waiting import settle

LONG_MS = 30_000


class Dialled:
    """A connection whose calls the test answers through the futures in `calls`."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.calls: list[asyncio.Task[Any]] = []
        self.answers: list[asyncio.Future[Any]] = []
        self.is_closed = False

    def unary(self, method: Method) -> Callable[[Any, int], asyncio.Task[Any]]:
        def begin(request: Any, timeout_ms: int) -> asyncio.Task[Any]:
            assert not self.is_closed
            self.answers.append(asyncio.get_running_loop().create_future())
            self.calls.append(asyncio.ensure_future(_answer(self.answers[-1])))
            return self.calls[-1]

        return begin

    async def close(self) -> None:
        self.is_closed = True
        for call in self.calls:
            call.cancel()


async def _answer(answer: asyncio.Future[Any]) -> Any:
    return await answer


class Dialler:
    """A transport that keeps its connections in the order of their creation."""

    def __init__(self) -> None:
        self.dialled: list[Dialled] = []

    def channel(self, address: str, options: ChannelOptions) -> Any:
        self.dialled.append(Dialled(address))
        return self.dialled[-1]


def run(scenario: Callable[[Dialler, ControllerChannel[AdminStub]], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        dialler = Dialler()
        channel = ControllerChannel(dialler, Controllers([("a", 1), ("b", 2)]), ADMIN)
        await scenario(dialler, channel)
        await channel.close()
        await settle()
        assert all(one.is_closed for one in dialler.dialled)

    asyncio.run(main())


def ask(channel: ControllerChannel[AdminStub], timeout_ms: int = LONG_MS) -> asyncio.Task[CreateTopicsResponse]:
    call = channel.ask(AdminStub.create_topics, CreateTopicsRequest(), timeout_ms=timeout_ms)
    return asyncio.ensure_future(call)


def test_a_call_that_times_out_does_not_close_the_connection_of_other_calls() -> None:
    async def scenario(dialler: Dialler, channel: ControllerChannel[AdminStub]) -> None:
        impatient, patient = ask(channel, timeout_ms=1_000), ask(channel)
        await settle()
        (former,) = dialler.dialled
        former.answers[0].set_exception(CallFailed(Status.DEADLINE_EXCEEDED))
        with pytest.raises(BrokerError):
            await impatient
        later = ask(channel)
        await settle()
        assert [one.address for one in dialler.dialled] == ["a:1", "b:2"]
        assert not former.is_closed
        former.answers[1].set_result(CreateTopicsResponse(metadata_end_index=1))
        assert (await patient).metadata_end_index == 1
        await settle()
        assert former.is_closed, "nobody uses it any more"
        dialler.dialled[1].answers[0].set_result(CreateTopicsResponse(metadata_end_index=2))
        assert (await later).metadata_end_index == 2

    run(scenario)


def test_closing_the_channel_ends_the_calls_to_former_controllers_too() -> None:
    async def scenario(dialler: Dialler, channel: ControllerChannel[AdminStub]) -> None:
        impatient, patient = ask(channel, timeout_ms=1_000), ask(channel)
        await settle()
        dialler.dialled[0].answers[0].set_exception(CallFailed(Status.DEADLINE_EXCEEDED))
        with pytest.raises(BrokerError):
            await impatient
        await channel.close()
        with pytest.raises(BrokerError, match="the connection was closed"):
            await patient

    run(scenario)
