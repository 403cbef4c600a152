"""A gRPC client that dialled the Kafka port. Its calls get a refusal for a while, then the connection is closed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from klamm_server.net.grpc_refusal import GrpcRefusal

REFUSAL_S = 5.0
"""How long the client's calls are answered with a refusal, in seconds."""


class RefusedClient:
    """A gRPC client at a Kafka listener, whose calls get a refusal. `close` is called after a time, or if the client
    does not read its answers."""

    def __init__(self, advice: str, transport: Any, close: Callable[[], None]) -> None:
        self._refusal = GrpcRefusal(advice)
        self._transport = transport
        self._close = close
        self._end = asyncio.get_running_loop().call_later(REFUSAL_S, close)

    def answer(self, data: bytes, *, is_writable: bool) -> None:
        """Answers the received bytes with a refusal. Closes the connection if the client does not read."""
        answer = self._refusal.answer(data)
        if is_writable:
            self._transport.write(answer)
        else:
            self._close()

    def forget(self) -> None:
        """Cancels the timer, after the connection was closed."""
        self._end.cancel()
