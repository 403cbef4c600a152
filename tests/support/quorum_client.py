"""A client of the controllers that never repeats a call that may have had an effect."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Sequence
from typing import Any, Final

import grpc
from grpc import aio

from klamm.errors import ErrorCode
from klamm.wire.v1.controller_rpc import ADMIN
from tests.support.raw_stub import RawStub


class Fate(enum.Enum):
    """The outcome of a call without an answer."""

    UNKNOWN = enum.auto()
    """The call may have happened, may happen later, or never."""
    NOT_DONE = enum.auto()
    """The call will never happen. The next one is sent to another controller."""


UNKNOWN: Final = Fate.UNKNOWN
NOT_DONE: Final = Fate.NOT_DONE

_CHANNEL_OPTIONS = [
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 20),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 50),
    ("grpc.enable_http_proxy", 0),
]
_PAUSE_S = 0.01


class QuorumClient:
    """Calls the Admin service of whichever of `addresses` is active. Waits `call_timeout_s` for an answer."""

    def __init__(self, addresses: Callable[[], Sequence[str]], *, call_timeout_s: float = 1.0) -> None:
        self._addresses = addresses
        self._call_timeout_s = call_timeout_s
        self._channels: dict[str, aio.Channel] = {}
        self._asked = addresses()[0]

    async def call(self, method: str, request: Any) -> Any:
        """Returns the answer of an active controller, or UNKNOWN. Repeats the call as long as it certainly had no
        effect."""
        while True:
            outcome = await self.attempt(method, request)
            if outcome is not NOT_DONE:
                return outcome
            await asyncio.sleep(_PAUSE_S)

    async def attempt(self, method: str, request: Any) -> Any:
        """Tries the call once. Returns the answer of an active controller, or a Fate."""
        try:
            response = await getattr(self._stub(), method)(request, timeout=self._call_timeout_s)
        except grpc.RpcError as error:
            self._turn()
            return NOT_DONE if _was_not_sent(error) else UNKNOWN
        if response.error_code == ErrorCode.NOT_CONTROLLER:
            self._follow(response.controller)
            return NOT_DONE
        return UNKNOWN if response.error_code == ErrorCode.REQUEST_TIMED_OUT else response

    def turn_to(self, address: str) -> None:
        """Sends the next call to `address` first, no matter which controller is active."""
        self._asked = address

    def _follow(self, active: Any) -> None:
        named = f"{active.host}:{active.port}"
        if named in self._addresses():
            self._asked = named
        else:
            self._turn()

    def _turn(self) -> None:
        addresses = self._addresses()
        following = addresses.index(self._asked) + 1 if self._asked in addresses else 0
        self._asked = addresses[following % len(addresses)]

    def _stub(self) -> RawStub:
        if self._asked not in self._channels:
            self._channels[self._asked] = aio.insecure_channel(self._asked, options=_CHANNEL_OPTIONS)
        return RawStub(self._channels[self._asked], ADMIN)

    async def close(self) -> None:
        for channel in self._channels.values():
            await channel.close()


def _was_not_sent(error: grpc.RpcError) -> bool:
    """Returns True if no controller received the call, or if a controller refused it."""
    refused = "refused" in (error.details() or "")
    return refused or error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
