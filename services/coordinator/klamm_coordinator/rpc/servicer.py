"""The Coordinator service: each call is counted, and answered by who does the work, which the first call loads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any

from klamm.wire.service import COORDINATOR, Method, methods
from klamm_coordinator.metrics import REQUEST_SECONDS, REQUESTS

if TYPE_CHECKING:
    from klamm_coordinator.work import Work

Rpc = Callable[[Any, Any], Awaitable[Any]]


class CoordinatorServicer:
    """What `RpcServer.add_service(COORDINATOR, ...)` takes."""

    def __init__(self, work: Callable[[], Awaitable[Work]]) -> None:
        for method in methods(COORDINATOR):
            setattr(self, method.name, _counted(method, work))


def _counted(method: Method, work: Callable[[], Awaitable[Work]]) -> Rpc:
    name = method.path.rpartition("/")[2]
    requests = REQUESTS.labels(name)

    async def call(request: Any, context: Any) -> Any:
        requests.inc()
        began_s = perf_counter()
        answer: Rpc = getattr((await work()).calls, method.name)
        try:
            return await answer(request, context)
        finally:
            REQUEST_SECONDS.labels(name).observe(perf_counter() - began_s)

    return call
