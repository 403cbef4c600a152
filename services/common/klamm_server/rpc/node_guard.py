"""Holds the calls between servers to `node.principals`: the caller is known by the certificate of the connection."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

from klamm.rpc.status import CallFailed
from klamm.wire.service import Method
from klamm_server.security.node_principals import NodePrincipals, nodes_of

Answer = Callable[[Any, Any], Any]
"""A coroutine function, or an async generator function, of (request, context)."""


class NodeGuard:
    """Guards the calls between servers. Call `guarded` for each served method."""

    def __init__(self, principals: NodePrincipals, principal_of: Callable[[Any], str]) -> None:
        """Checks callers by `principals`. `principal_of` returns the principal in a caller's certificate."""
        self._principals = principals
        self._principal_of = principal_of

    def guarded(self, method: Method, answer: Answer) -> Answer:
        """Returns `answer` with a check before it. A call on behalf of another node raises
        CallFailed(PERMISSION_DENIED)."""
        speaks_for = nodes_of(method.path)
        if speaks_for is None:
            return answer
        if method.client_streaming:
            return (self._guard_streams if method.server_streaming else self._guard_upload)(speaks_for, answer)

        def checked(request: Any, context: Any) -> Any:
            self._principals.check(speaks_for(request), self._principal_of(context))
            return answer(request, context)

        return checked

    def _guard_upload(self, speaks_for: Callable[[Any], Any], answer: Answer) -> Answer:
        async def checked(requests: AsyncIterator[Any], context: Any) -> Any:
            stream = _Checked(self._principals, speaks_for, self._principal_of(context), requests)
            answered = await answer(stream.requests(), context)
            stream.raise_if_refused()
            return answered

        return checked

    def _guard_streams(self, speaks_for: Callable[[Any], Any], answer: Answer) -> Answer:
        async def checked(requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
            stream = _Checked(self._principals, speaks_for, self._principal_of(context), requests)
            async for response in answer(stream.requests(), context):
                yield response
            stream.raise_if_refused()

        return checked


class _Checked:
    """A stream of requests that ends at the first refused request. The reader may be a task of its own, whose failure
    would go unnoticed."""

    def __init__(
        self, principals: NodePrincipals, speaks_for: Callable[[Any], Any], principal: str, requests: AsyncIterator[Any]
    ) -> None:
        self._principals = principals
        self._speaks_for = speaks_for
        self._principal = principal
        self._requests = requests
        self._refusal: CallFailed | None = None

    async def requests(self) -> AsyncIterator[Any]:
        async for request in self._requests:
            try:
                self._principals.check(self._speaks_for(request), self._principal)
            except CallFailed as refusal:
                self._refusal = refusal
                return
            yield request

    def raise_if_refused(self) -> None:
        if self._refusal is not None:
            raise self._refusal
