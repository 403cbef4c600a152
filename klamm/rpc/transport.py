"""Transports carry calls. Clients and servers get theirs as an argument, so that another transport can replace gRPC.

A transport does not handle error codes, retries and cancelled callers. `klamm.rpc.connection` does."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextvars import ContextVar
from typing import Any, Final, Protocol

from klamm.rpc.options import ChannelOptions
from klamm.wire.service import Method


class UnaryCall(Protocol):
    """A call under way that has one request and one answer. An asyncio.Task is one."""

    def __await__(self) -> Generator[Any, None, Any]:
        """Waits for the answer and returns it. Raises CallFailed, or CancelledError if the caller or the call was
        cancelled."""

    def add_done_callback(self, function: Callable[[Any], None]) -> object:
        """Calls `function` when the call has ended."""

    def cancel(self) -> object:
        """Cancels the call. Its caller gets CancelledError."""


class StreamCall(Protocol):
    """A call under way with many requests, many answers, or both.

    `write` and `read` raise CallFailed, or CancelledError if the caller or the call was cancelled."""

    async def write(self, request: Any) -> None:
        """Sends a request, and returns when the transport accepts the next one. Only for calls with many requests."""

    async def read(self) -> Any:
        """Returns the next answer, or None after the other side has ended the call without an error."""

    def done(self) -> bool:
        """Returns whether the call has ended."""

    def add_done_callback(self, function: Callable[[Any], None]) -> object:
        """Calls `function` when the call has ended."""

    def cancel(self) -> object:
        """Cancels the call."""


class Channel(Protocol):
    """A channel to one server. It connects at the first call, and again whenever necessary."""

    def unary(self, method: Method) -> Callable[[Any, int], UnaryCall]:
        """Returns a function that begins a call with (request, timeout in ms)."""

    def stream(self, method: Method) -> Callable[[Any, int | None], StreamCall]:
        """Returns a function that begins a call with (request, timeout in ms). The request is None if requests are
        streamed."""

    async def close(self) -> None:
        """Cancels the calls under way and closes the channel."""


class Transport(Protocol):
    """The part of a transport that clients need."""

    def channel(self, address: str, options: ChannelOptions) -> Channel:
        """Returns a channel to host:port."""


TRANSPORT: Final[ContextVar[Transport | None]] = ContextVar("TRANSPORT", default=None)
"""The transport of clients that are made in this context, or None for gRPC. A simulation sets it."""
