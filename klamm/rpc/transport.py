"""Transports carry calls. Clients and servers get theirs as an argument, so that another transport can replace gRPC.

A transport knows nothing of error codes, retries and cancelled callers: that is `klamm.rpc.connection`'s business.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Protocol

from klamm.rpc.options import ChannelOptions
from klamm.wire.service import Method


class UnaryCall(Protocol):
    """A call under way that has one request and one answer. An asyncio.Task is one."""

    def __await__(self) -> Generator[Any, None, Any]:
        """The answer. Raises CallFailed, or CancelledError: the caller was cancelled, or the call."""

    def add_done_callback(self, function: Callable[[Any], None]) -> object:
        """Calls it when the call is over."""

    def cancel(self) -> object:
        """Ends the call; its caller gets CancelledError."""


class StreamCall(Protocol):
    """A call under way with many requests, or answers, or both.

    `write` and `read` raise CallFailed, or CancelledError: the caller was cancelled, or the call."""

    async def write(self, request: Any) -> None:
        """Returns when the next request is taken. Only where requests stream."""

    async def read(self) -> Any:
        """The next answer, or None: the other side has ended the call in order."""

    def done(self) -> bool:
        """Whether it is over."""

    def add_done_callback(self, function: Callable[[Any], None]) -> object:
        """Calls it when the call is over."""

    def cancel(self) -> object:
        """Ends the call."""


class Channel(Protocol):
    """The way to one server. It dials on first use, and again whenever it must."""

    def unary(self, method: Method) -> Callable[[Any, int], UnaryCall]:
        """Begins a call with (request, time-out in ms)."""

    def stream(self, method: Method) -> Callable[[Any, int | None], StreamCall]:
        """Begins a call with (request, time-out in ms); the request is None where requests stream."""

    async def close(self) -> None:
        """Ends the calls under way, as `cancel` does."""


class Transport(Protocol):
    """What a client needs."""

    def channel(self, address: str, options: ChannelOptions) -> Channel:
        """The way to host:port."""
