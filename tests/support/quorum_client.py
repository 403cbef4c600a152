"""A client of the controllers that never repeats a call that may have had an effect."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from klamm.errors import ErrorCode
from klamm.rpc.grpc_transport import GrpcTransport
from klamm.rpc.options import QUORUM
from klamm.rpc.status import CallFailed, Status
from klamm.rpc.transport import TRANSPORT, Channel
from klamm.wire.v1.controller_rpc import ADMIN


class Fate(enum.Enum):
    """The outcome of a call without an answer."""

    UNKNOWN = enum.auto()
    """The call may have happened, may happen later, or never."""
    NOT_DONE = enum.auto()
    """The call will never happen. The next one is sent to another controller."""


UNKNOWN: Final = Fate.UNKNOWN
NOT_DONE: Final = Fate.NOT_DONE

_OPTIONS = replace(QUORUM, reconnect_backoff_ms=20, reconnect_backoff_max_ms=50, connection_setup_timeout_ms=100)
_METHODS = {method.name: method for method in ADMIN.methods}
_PAUSE_S = 0.01


class QuorumClient:
    """Calls the Admin service of whichever of `addresses` is active. Waits `call_timeout_s` for an answer."""

    def __init__(self, addresses: Callable[[], Sequence[str]], *, call_timeout_s: float = 1.0) -> None:
        self._addresses = addresses
        self._call_timeout_s = call_timeout_s
        self._channels: dict[str, Channel] = {}
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
            response = await self._channel().unary(_METHODS[method])(request, round(self._call_timeout_s * 1000))
        except CallFailed as failure:
            self._turn()
            return NOT_DONE if _was_not_sent(failure) else UNKNOWN
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

    def _channel(self) -> Channel:
        channel = self._channels.get(self._asked)
        if channel is None:
            transport = TRANSPORT.get() or GrpcTransport()
            channel = self._channels[self._asked] = transport.channel(self._asked, _OPTIONS)
        return channel

    async def close(self) -> None:
        for channel in self._channels.values():
            await channel.close()


def _was_not_sent(failure: CallFailed) -> bool:
    """Returns True if no controller received the call, or if a controller refused it."""
    return "refused" in failure.details or failure.status is Status.RESOURCE_EXHAUSTED
