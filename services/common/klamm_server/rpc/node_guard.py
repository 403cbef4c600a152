"""Holds the calls between servers to `node.principals`: the caller is known by the certificate of the connection.

Somebody may have stolen the key of another server. So the guard logs refusals, and records them in the audit."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

from klamm.process import PROCESS
from klamm.rpc.status import CallFailed
from klamm.wire.service import Method
from klamm_server.net.wrong_protocol import WrongProtocolLog
from klamm_server.security.auditor import Auditor
from klamm_server.security.gate import host_of
from klamm_server.security.node_principals import Node, NodePrincipals, nodes_of

log = logging.getLogger(__name__)

Answer = Callable[[Any, Any], Any]
"""A coroutine function, or an async generator function, of (request, context)."""

Check = Callable[[Iterable[Node]], None]
"""Raises CallFailed(PERMISSION_DENIED) if the caller may not speak for one of the nodes."""


class NodeGuard:
    """Guards the calls between servers. Call `guarded` for each served method."""

    def __init__(
        self, principals: NodePrincipals, principal_of: Callable[[Any], str], auditor: Auditor | None = None
    ) -> None:
        """Checks callers by `principals`. `principal_of` returns the principal in a caller's certificate."""
        self._principals = principals
        self._principal_of = principal_of
        self._auditor = auditor
        self._wrong_protocols = WrongProtocolLog(log, "the listener between servers", PROCESS.get().monotonic_ms)

    def guarded(self, method: Method, answer: Answer) -> Answer:
        """Returns `answer` with a check before it. A call on behalf of another node raises
        CallFailed(PERMISSION_DENIED)."""
        speaks_for = nodes_of(method.path)
        if speaks_for is None:
            return answer
        if method.client_streaming:
            guard = self._guard_streams if method.server_streaming else self._guard_upload
            return guard(method, speaks_for, answer)

        def checked(request: Any, context: Any) -> Any:
            self._check(method, context)(speaks_for(request))
            return answer(request, context)

        return checked

    def _check(self, method: Method, context: Any) -> Check:
        """Returns the check of a call's requests, with the principal of the call's connection."""
        principal = self._principal_of(context)

        def check(nodes: Iterable[Node]) -> None:
            try:
                self._principals.check(nodes, principal)
            except CallFailed as refusal:
                self._report(method, principal, host_of(context.peer()), refusal.details)
                raise

        return check

    def _report(self, method: Method, principal: str, host: str, refusal: str) -> None:
        call = method.path.rpartition("/")[2]
        # The caller chooses the node, so the log's sentence does not name it.
        self._wrong_protocols.report_refused(call, host, f"{principal} may not act as another node (node.principals)")
        if self._auditor is not None:
            self._auditor.refused_node(principal, host, call, refusal)

    def _guard_upload(self, method: Method, speaks_for: Callable[[Any], Any], answer: Answer) -> Answer:
        async def checked(requests: AsyncIterator[Any], context: Any) -> Any:
            stream = _Checked(self._check(method, context), speaks_for, requests)
            answered = await answer(stream.requests(), context)
            stream.raise_if_refused()
            return answered

        return checked

    def _guard_streams(self, method: Method, speaks_for: Callable[[Any], Any], answer: Answer) -> Answer:
        async def checked(requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
            stream = _Checked(self._check(method, context), speaks_for, requests)
            async for response in answer(stream.requests(), context):
                yield response
            stream.raise_if_refused()

        return checked


class _Checked:
    """A stream of requests that ends at the first refused request. The reader may be a task of its own, whose failure
    would go unnoticed."""

    def __init__(self, check: Check, speaks_for: Callable[[Any], Any], requests: AsyncIterator[Any]) -> None:
        self._check = check
        self._speaks_for = speaks_for
        self._requests = requests
        self._refusal: CallFailed | None = None

    async def requests(self) -> AsyncIterator[Any]:
        async for request in self._requests:
            try:
                self._check(self._speaks_for(request))
            except CallFailed as refusal:
                self._refusal = refusal
                return
            yield request

    def raise_if_refused(self) -> None:
        if self._refusal is not None:
            raise self._refusal
