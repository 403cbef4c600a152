"""A transport that loses cancellations, as gRPC does when a call is cancelled just as it ends. The caller gets a status
instead."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any

from klamm.rpc.options import ChannelOptions
from klamm.rpc.status import CallFailed, Status
from klamm.wire.service import Method


class SlippingTransport:
    """A transport that never answers a call. The first cancellation of a caller ends its call as UNAVAILABLE."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        """The methods called, in order."""
        self._begun: list[asyncio.Event] = [asyncio.Event(), asyncio.Event()]
        self._has_slipped = False

    async def wait_for_call(self, number: int = 0) -> None:
        """Waits until the first call (0) or the second one (1) waits for its answer."""
        await self._begun[number].wait()

    def channel(self, address: str, options: ChannelOptions) -> _Channel:
        return _Channel(self)

    async def hang(self, name: str) -> Any:
        self.calls.append(name)
        if len(self.calls) <= len(self._begun):
            self._begun[len(self.calls) - 1].set()
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            if self._has_slipped:
                raise
            self._has_slipped = True
            raise CallFailed(Status.UNAVAILABLE, "a cancellation slipped") from None


class _Channel:
    def __init__(self, transport: SlippingTransport) -> None:
        self._transport = transport

    def unary(self, method: Method) -> Callable[[Any, int], _Call]:
        return lambda request, timeout_ms: _Call(self._transport, method.name)

    def stream(self, method: Method) -> Callable[[Any, int | None], _Call]:
        return lambda request, timeout_ms: _Call(self._transport, method.name)

    async def close(self) -> None:
        pass


class _Call:
    """A call of any kind. It hangs as soon as the caller waits for an answer or sends the first request of a stream."""

    def __init__(self, transport: SlippingTransport, name: str) -> None:
        self._transport = transport
        self._name = name

    def __await__(self) -> Generator[Any, None, Any]:
        return self._transport.hang(self._name).__await__()

    async def write(self, request: Any) -> None:
        await self._transport.hang(self._name)

    async def read(self) -> Any:
        return await self._transport.hang(self._name)

    def done(self) -> bool:
        return False

    def add_done_callback(self, function: Callable[[Any], None]) -> None:
        pass

    def cancel(self) -> None:
        pass


async def end_by_one_cancellation(transport: SlippingTransport, coroutine: Coroutine[Any, Any, Any]) -> None:
    """Cancels the coroutine while its first call is under way. Asserts that it ends, and makes no second call."""
    task = asyncio.ensure_future(coroutine)
    calling = asyncio.ensure_future(transport.wait_for_call())
    await asyncio.wait({task, calling}, return_when=asyncio.FIRST_COMPLETED)
    assert not task.done(), f"it ended before it was cancelled: {task}"
    task.cancel()
    again = asyncio.ensure_future(transport.wait_for_call(1))
    await asyncio.wait({task, again}, return_when=asyncio.FIRST_COMPLETED)
    again.cancel()
    survived = not task.done()
    task.cancel()
    await asyncio.wait({task})
    assert not survived, f"it survived its cancellation and went on calling: {transport.calls}"
    assert task.cancelled(), f"it ended with {task.exception() or task.result()!r} instead"
