"""The Admin's calls: how it finds the servers that have to answer, and how it reports results.

If a call names several items, it tries all of them. It then raises the error of the first item that failed. Notes on
the exception (`__notes__`) name the other failed items. If a call asks several servers to read, it stops at the first
error. In both cases nothing is running after the caller got the error (`klamm.several_calls`)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple, Protocol, TypeVar

from klamm.cluster.client import KlammClient
from klamm.consumer.offsets.offset_store import call_coordinator
from klamm.errors import ErrorCode, KlammError, raise_first, raise_for
from klamm.wire.calls import RequestT, ResponseT, Unary
from klamm.wire.v1.broker_pb2 import COORDINATOR_KEY_TYPE_GROUP, CoordinatorKeyType
from klamm.wire.v1.common_pb2 import Endpoint
from klamm.wire.v1.controller_rpc import AdminStub
from klamm.wire.v1.coordinator_rpc import CoordinatorStub

T = TypeVar("T")


class Outcome(Protocol):
    """The result for one item in an answer."""

    @property
    def error_code(self) -> int: ...

    @property
    def error_message(self) -> str: ...


class BareOutcome(NamedTuple):
    """The outcome of an answer that has only an error code."""

    error_code: int

    @property
    def error_message(self) -> str:
        return ErrorCode.of(self.error_code).text


class AdminCalls:
    """The Admin's calls with retries. `timeout_ms` of None means `default.api.timeout.ms`."""

    def __init__(self, client: KlammClient) -> None:
        self.client = client

    def timeout_ms(self, timeout_ms: int | None) -> int:
        return self.client.config.default_api_timeout_ms if timeout_ms is None else timeout_ms

    async def retrying(self, attempt: Callable[[], Awaitable[T]], timeout_ms: int | None) -> T:
        return await self.client.retrying(attempt, timeout_ms=self.timeout_ms(timeout_ms))

    async def controller(
        self, rpc: Unary[AdminStub, RequestT, ResponseT], request: RequestT, timeout_ms: int | None = None
    ) -> ResponseT:
        """Calls the active controller, and follows it if another controller becomes active."""
        return await self.retrying(lambda: self.ask_controller(rpc, request), timeout_ms)

    async def any_controller(
        self, rpc: Unary[AdminStub, RequestT, ResponseT], request: RequestT, timeout_ms: int | None = None
    ) -> ResponseT:
        """Calls any controller that answers. Tries each controller once before it repeats one. No attempt may use up
        the time of the others."""
        asked: set[str] = set()

        async def attempt() -> ResponseT:
            await self._find_controllers()
            asked.add(self.client.controller_address)
            share_ms = self.timeout_ms(timeout_ms) // max(1, len(self.client.cluster.controllers))
            try:
                return await self.ask_controller(rpc, request, timeout_ms=share_ms)
            except KlammError:
                # Newer metadata may list the controllers in another order.
                for node in self.client.cluster.controllers:
                    if node.address not in asked:
                        self.client.leave_controller(Endpoint(host=node.host, port=node.port))
                        break
                raise

        return await self.retrying(attempt, timeout_ms)

    async def ask_controller(
        self, rpc: Unary[AdminStub, RequestT, ResponseT], request: RequestT, *, timeout_ms: int | None = None
    ) -> ResponseT:
        """Makes one attempt with a timeout of `timeout_ms`, by default `request.timeout.ms`. After a retriable failure,
        the next attempt goes to another controller."""
        await self._find_controllers()
        response = None
        try:
            limit_ms = self.client.config.request_timeout_ms if timeout_ms is None else timeout_ms
            response = await rpc(self.client.admin(), request, timeout_ms=limit_ms)
            raise_for(getattr(response, "error_code", 0), getattr(response, "error_message", ""))
        except KlammError as error:
            if error.retriable:
                self.client.leave_controller(getattr(response, "controller", None))
                await self.client.refresh_metadata([])
            raise
        return response

    async def _find_controllers(self) -> None:
        if not self.client.cluster.controllers:
            await self.client.refresh_metadata([])

    async def coordinator(
        self,
        key: str,
        rpc: Unary[CoordinatorStub, RequestT, ResponseT],
        request: RequestT,
        timeout_ms: int | None = None,
        *,
        key_type: CoordinatorKeyType = COORDINATOR_KEY_TYPE_GROUP,
    ) -> ResponseT:
        """Calls the coordinator of a group or transactional id. Raises the error of the whole answer, or of its only
        item."""

        async def attempt() -> ResponseT:
            response = await call_coordinator(self.client, key, rpc, request, key_type=key_type)
            code, message = _outcome_of(response)
            if ErrorCode.of(code).retriable:
                self.client.forget_coordinator(key, key_type)
            raise_for(code, message)
            return response

        return await self.retrying(attempt, timeout_ms)


def raise_first_error(outcomes: Iterable[tuple[str, Outcome]]) -> None:
    """Raises the error of the first failed outcome, with notes about the others. `outcomes` are pairs of an item's name
    and its outcome."""
    raise_first(
        [
            ErrorCode.of(outcome.error_code).exception(_named(name, outcome.error_message))
            for name, outcome in outcomes
            if outcome.error_code
        ]
    )


def _named(name: str, message: str) -> str:
    return message if name in message else f"{name}: {message or 'refused'}"


def _outcome_of(response: Any) -> tuple[int, str]:
    if hasattr(response, "error_code"):
        return response.error_code, response.error_message
    (only,) = next(getattr(response, name) for name in ("groups", "results", "transactions") if hasattr(response, name))
    return only.error_code, only.error_message
