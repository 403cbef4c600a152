"""The gate before the calls of a server that has an authorizer.

The gate finds the caller's principal. It refuses calls at once if they need a right to the cluster that the caller
lacks (`operations.py`). The handlers check all other rights.

At the listener between servers, a caller that may do CLUSTER_ACTION is another server. It acts for itself, and is not
checked further, or for a client whose request it passes on: then the call's metadata name the client (KIP-590). From
any other caller such metadata are refused. At other listeners, CLUSTER_ACTION is a right like any other.

A stream is looked at again before the first answer after a change of the access control lists.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final

from klamm.acls import ANONYMOUS, CLUSTER_NAME, AclOperation, ResourceType
from klamm.errors import BrokerError
from klamm.rpc.call_metadata import CALL_METADATA, Metadata
from klamm.rpc.status import CallFailed, Status
from klamm.wire.calls import CallContext
from klamm.wire.service import Method
from klamm_server.metadata.acl_index import AclIndex
from klamm_server.net.listeners import CAME_BY
from klamm_server.security.acls.authorizer import StandardAuthorizer
from klamm_server.security.acls.decisions import DecisionBudget
from klamm_server.security.audit.changes import changes_of, is_change
from klamm_server.security.audit.decisions import Call
from klamm_server.security.audit.events import TEXT_MAX
from klamm_server.security.auditor import CERTIFICATE, Auditor
from klamm_server.security.operations import Check, check_of_rpc
from klamm_server.security.peer_principals import LOGGED_IN
from klamm_server.security.session import CALL, CALLER, Session, require_audit

FORWARDED: Final = "klamm-principal-bin"
"""The metadata of a forwarded call: the client's address and its principal, one per line."""
FORWARDED_CALL: Final = "klamm-client-bin"
"""The metadata of a forwarded call for the audit: the client's listener and its client id, one per line. A server
without an audit does not send them."""
_SEPARATOR: Final = b"\n"
SESSIONS_MAX: Final = 1_024
"""The maximum number of principals at addresses whose decisions are cached between calls."""


@contextmanager
def for_caller() -> Iterator[None]:
    """Makes the calls that begin inside on behalf of the caller, if there is one."""
    caller = CALLER.get()
    if caller is None:
        yield
        return
    added: Metadata = (forwarded(caller),)
    if caller.audit is not None:
        added += (forwarded_call(CALL.get()),)
    token = CALL_METADATA.set(CALL_METADATA.get() + added)
    try:
        yield
    finally:
        CALL_METADATA.reset(token)


def forwarded(session: Session) -> tuple[str, bytes]:
    """Returns the metadata of calls on behalf of a client."""
    return FORWARDED, session.host.encode() + _SEPARATOR + session.principal.encode()


def forwarded_call(call: Call) -> tuple[str, bytes]:
    """Returns the metadata for the audit. A client id is cut, because metadata have a bound and events cut it, too."""
    return FORWARDED_CALL, call.listener.encode() + _SEPARATOR + call.client_id[:TEXT_MAX].encode(errors="replace")


def is_forwarded(context: CallContext) -> bool:
    """Returns True if a call behind the gate is on behalf of another server's client."""
    return _forwarded_by(context) is not None


class Gate:
    """The gate of one server. `principal_of` returns the principal of a call's connection. Other servers call at
    `servers_listener` only, or at every listener if it is None. Until `is_loaded`, some ACLs may be missing, even
    denials. So only super users pass then, and other calls are UNAVAILABLE."""

    def __init__(
        self,
        authorizer: StandardAuthorizer,
        acls: Callable[[], AclIndex],
        principal_of: Callable[[CallContext], str] = lambda _: ANONYMOUS,
        *,
        servers_listener: str | None = None,
        is_loaded: Callable[[], bool] = lambda: True,
        auditor: Auditor | None = None,
    ) -> None:
        self._authorizer = authorizer
        self._acls = acls
        self._principal_of = principal_of
        self._servers_listener = servers_listener
        self._is_loaded = is_loaded
        self._auditor = auditor
        self.decisions = DecisionBudget()
        """The memory of the decisions that all sessions keep."""
        self._kept_session = lru_cache(SESSIONS_MAX)(self.session)
        self._record_certificate = lru_cache(SESSIONS_MAX)(_record_certificate)

    def session(self, principal: str, host: str) -> Session:
        """Returns the session of a connection, or of a forwarded call."""
        audit = None if self._auditor is None else self._auditor.of_session(principal, host)
        return Session(self._authorizer, self._acls, principal, host, audit, self.decisions)

    def guarded(self, method: Method, answer: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        """Returns a servicer's function with the gate before it. It raises CallFailed with PERMISSION_DENIED."""
        check = check_of_rpc(method.path)
        if self._auditor is not None:
            answer = self._audited(method, answer)
        return (self._stream if method.server_streaming else self._unary)(method, check, answer)

    def _audited(self, method: Method, answer: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        """Returns the function with an audit of its changes. It runs behind the gate, where the caller is known. It
        raises CallFailed(FAILED_PRECONDITION) while the audit refuses changes."""
        if not is_change(_name(method)):
            return answer

        async def call(request: Any, context: CallContext) -> Any:
            if not getattr(request, "validate_only", False):
                _require_audit()
            response = await answer(request, context)
            caller = CALLER.get() or self._kept_session(self._principal_of(context), host_of(context.peer()))
            if caller.audit is not None:
                for event in changes_of(_name(method), request, response):
                    caller.audit.changed(event, CALL.get())
            return response

        return call

    def _unary(
        self, method: Method, check: Check, answer: Callable[[Any, Any], Awaitable[Any]]
    ) -> Callable[[Any, Any], Awaitable[Any]]:
        async def call(request: Any, context: CallContext) -> Any:
            CALLER.set(self._admitted(method, check, context))
            return await answer(request, context)

        return call

    def _stream(
        self, method: Method, check: Check, answer: Callable[[Any, Any], AsyncIterator[Any]]
    ) -> Callable[[Any, Any], AsyncIterator[Any]]:
        async def call(request: Any, context: CallContext) -> AsyncIterator[Any]:
            acls = self._acls()
            CALLER.set(self._admitted(method, check, context))
            async for response in answer(request, context):
                if self._acls() is not acls:
                    # The caller may have lost its right to the stream, or its rights as a server.
                    acls = self._acls()
                    CALLER.set(self._admitted(method, check, context))
                yield response

        return call

    def _admitted(self, method: Method, check: Check, context: CallContext) -> Session | None:
        """Returns the session of the call, or None if a server calls for itself."""
        principal = (
            self._principal_of(context) if self._auditor is None else self._recorded_principal(self._auditor, context)
        )
        if self._auditor is not None:
            CALL.set(Call(_name(method), listener=CAME_BY.get()))
        if not self._is_loaded() and not self._authorizer.is_super_user(principal):
            raise CallFailed(Status.UNAVAILABLE, "the access control lists are not loaded yet")
        caller = self._kept_session(principal, host_of(context.peer()))
        is_server = self._servers_listener in (None, CAME_BY.get()) and caller.may_be_shown(
            AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME
        )
        client = _forwarded_by(context)
        if client is not None and not is_server:
            # This check records the refusal in the audit.
            caller.may_with_cluster(AclOperation.CLUSTER_ACTION)
            raise CallFailed(Status.PERMISSION_DENIED, "only servers may forward the requests of clients")
        if client is None and is_server:
            return None
        if client is not None:
            caller = self._kept_session(*_principal_and_host(client))
            if caller.audit is not None:
                CALL.set(_call_of_client(_name(method), context))
        if check.of_cluster and not caller.may_with_cluster(*check.of_cluster):
            raise CallFailed(Status.PERMISSION_DENIED, "Cluster authorization failed.")
        return caller

    def _recorded_principal(self, auditor: Auditor, context: CallContext) -> str:
        """Returns the caller's principal, and records certificates in the audit.

        A certificate without a principal is recorded. Other certificates are recorded with their first call from an
        address, because the gate does not know the connections."""
        host = host_of(context.peer())
        try:
            principal = self._principal_of(context)
        except CallFailed as failure:
            auditor.logged_in("User:", host, CERTIFICATE, CAME_BY.get(), failure.details)
            raise
        if principal != ANONYMOUS and LOGGED_IN.get() is None:
            self._record_certificate(auditor, principal, host)
        return principal


def _name(method: Method) -> str:
    """Returns the method's name without its service, for example `CreateTopics`."""
    return method.path.rpartition("/")[2]


def _require_audit() -> None:
    try:
        require_audit()
    except BrokerError as error:
        raise CallFailed(Status.FAILED_PRECONDITION, error.message) from None


def _record_certificate(auditor: Auditor, principal: str, host: str) -> None:
    auditor.logged_in(principal, host, CERTIFICATE, CAME_BY.get())


def _forwarded_by(context: CallContext) -> str | bytes | None:
    """Returns the client for whom the caller forwards a request, unchecked, because any caller can claim this."""
    return _metadata(context, FORWARDED)


def _metadata(context: CallContext, wanted: str) -> str | bytes | None:
    return next((value for name, value in context.invocation_metadata() or () if name == wanted), None)


def _call_of_client(api: str, context: CallContext) -> Call:
    """Returns the call as the audit records it. A server of an older version does not send the listener and the client
    id."""
    told = _metadata(context, FORWARDED_CALL) or b""
    assert isinstance(told, bytes), "metadata whose names end in -bin are bytes"
    listener, _, client_id = told.decode(errors="replace").partition(_SEPARATOR.decode())
    return Call(api, client_id, listener)


def _principal_and_host(told: str | bytes) -> tuple[str, str]:
    """Returns principal and host from a server's metadata `forwarded`. Raises CallFailed(INVALID_ARGUMENT)."""
    assert isinstance(told, bytes), "metadata whose names end in -bin are bytes"
    host, separator, principal = told.partition(_SEPARATOR)
    try:
        if separator:
            return principal.decode(), host.decode()
    except UnicodeDecodeError:
        pass
    raise CallFailed(
        Status.INVALID_ARGUMENT,
        f"{FORWARDED} is malformed, expected a line with an address and a line with a principal, in UTF-8",
    )


def host_of(peer: str) -> str:
    """Returns the host of gRPC's address: `10.0.0.1` of `ipv4:10.0.0.1:50321`, `::1` of `ipv6:%5B::1%5D:50321`. Any
    other text stays as it is."""
    kind, _, address = peer.partition(":")
    if kind not in ("ipv4", "ipv6"):
        return peer
    return address.rpartition(":")[0].replace("%5B", "").replace("%5D", "").strip("[]")
