"""gRPC's own services, health and reflection, with a bound of the calls that last.

These calls do not count for the limit of clients' calls (`call_limit.py`). Without a bound, one client could use up
gRPC's bound of a listener by them, and keep out servers too. So each address has a share of the places.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from grpc_health.v1 import health_pb2
from grpc_health.v1.health import aio as health_aio
from grpc_reflection.v1alpha import reflection

from klamm.rpc.status import CallFailed, Status
from klamm_server.rpc.before_login import refusing
from klamm_server.rpc.transport import Callers
from klamm_server.runtime.place_shares import PlaceShares
from klamm_server.security.acls.hosts import network_of
from klamm_server.security.gate import host_of

LASTING_MAX: Final = 500
"""The maximum number of calls of each service at a server. One address may have two thirds of them."""


class _LastingCalls:
    """The calls of one service that are in progress."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._places = PlaceShares(LASTING_MAX)

    @contextmanager
    def place(self, context: Any) -> Iterator[None]:
        """Takes a place for the time of the block. Raises CallFailed(RESOURCE_EXHAUSTED) if there is none."""
        user = network_of(host_of(context.peer()))
        if not self._places.take(user):
            raise CallFailed(Status.RESOURCE_EXHAUSTED, f"the client's address has too many calls that {self._what}")
        try:
            yield
        finally:
            self._places.give_back(user)


class FairHealth(health_aio.HealthServicer):  # type: ignore[misc]
    """The health service of a server, with a bound of the clients that watch the health."""

    def __init__(self) -> None:
        super().__init__()
        self._watching = _LastingCalls("watch the health: call Check")

    async def Watch(self, request: health_pb2.HealthCheckRequest, context: Any) -> None:
        async with refusing(context):
            with self._watching.place(context):
                await super().Watch(request, context)


class FairReflection(reflection.aio.ReflectionServicer):  # type: ignore[misc]
    """The reflection service of a listener. With `callers`, it answers only clients that have logged in."""

    def __init__(self, names: Sequence[str], callers: Callers | None = None) -> None:
        super().__init__(names)
        self._callers = callers
        self._asking = _LastingCalls("ask for reflection")

    async def ServerReflectionInfo(self, request_iterator: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        async with refusing(context):
            if self._callers is not None:
                await self._callers.session(context)
            with self._asking.place(context):
                async for answer in super().ServerReflectionInfo(request_iterator, context):
                    yield answer
