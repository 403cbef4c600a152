"""The principal that makes a call, and the checks that the handlers make, which own the state.

A door says whose call it is (`CALLER`) before it calls a handler; the handler asks `may` or `require` of each resource.
So both doors and forwarded requests meet the same checks. Where there is no authorizer, or a server acts for itself,
there is no caller, and everything may be done: that costs one look at a context variable.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import CoroutineType
from typing import Any, Final, TypeVar

from klamm.acls import CLUSTER_NAME, AclOperation, ResourceType
from klamm.errors import BrokerError, ErrorCode
from klamm_server.metadata.acl_index import AclIndex
from klamm_server.security.acls.authorizer import StandardAuthorizer
from klamm_server.security.acls.decisions import Decisions
from klamm_server.security.audit.decisions import Call, SessionAudit
from klamm_server.security.audit.events import AuditEvent

RequestT = TypeVar("RequestT")
AnswerT = TypeVar("AnswerT")

_REFUSALS: Final = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


class Session:
    """A principal at an address, as long as it is connected."""

    __slots__ = ("_acls", "_authorizer", "_decisions", "audit", "host", "principal")

    def __init__(
        self,
        authorizer: StandardAuthorizer,
        acls: Callable[[], AclIndex],
        principal: str,
        host: str,
        audit: SessionAudit | None = None,
    ) -> None:
        self.principal = principal
        self.host = host
        self.audit = audit
        """Records the decisions about the session, or None if they are not recorded."""
        self._authorizer = authorizer
        self._acls = acls
        self._decisions = Decisions(authorizer, principal, host)

    def may(self, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        """Returns whether the session may perform the operation, by the newest ACLs. The audit records the decision."""
        decision = self._decisions.decide(self._acls(), operation, resource_type, name)
        if self.audit is not None:
            self.audit.decided(decision, operation, resource_type, name, CALL.get())
        return decision.is_allowed

    def may_be_shown(self, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        """Whether the session may do that, for a resource that it has not named. A refusal is no attempt, so the audit
        does not record it."""
        return self._decisions.decide(self._acls(), operation, resource_type, name).is_allowed

    def may_with_cluster(self, *operations: AclOperation) -> bool:
        """Whether the session may do one of these operations with the cluster. The audit records one of them."""
        may = (one for one in operations if self.may_be_shown(one, ResourceType.CLUSTER, CLUSTER_NAME))
        return self.may(next(may, operations[-1]), ResourceType.CLUSTER, CLUSTER_NAME)

    def may_with_any(self, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Returns whether there can be a resource on which the session may perform the operation (KIP-679)."""
        return self._authorizer.authorize_by_resource_type(
            self._acls(), self.principal, self.host, operation, resource_type
        ).is_allowed


CALLER: ContextVar[Session | None] = ContextVar("caller", default=None)
"""The session of the call that is being handled, or None without an authorizer."""
CALL: ContextVar[Call] = ContextVar("call", default=Call())  # noqa: B039 - nobody writes into it
"""The request or call that is being handled, for the audit."""


def called_by(
    session: Session, handle: Callable[[RequestT], AnswerT | Coroutine[Any, Any, AnswerT]], request: RequestT
) -> AnswerT | Coroutine[Any, Any, AnswerT]:
    """Returns the answer of `handle` to the session's request, immediately or as an awaitable."""
    token = CALLER.set(session)
    try:
        answer = handle(request)
    finally:
        CALLER.reset(token)
    # An abstract class would be asked in Python, for every request.
    return _in_time(session, answer) if isinstance(answer, CoroutineType) else answer


async def _in_time(session: Session, answer: Coroutine[Any, Any, AnswerT]) -> AnswerT:
    token = CALLER.set(session)
    try:
        return await answer
    finally:
        CALLER.reset(token)


@contextmanager
def for_itself() -> Iterator[None]:
    """Makes the server act for itself inside, because the caller's rights were checked already."""
    token = CALLER.set(None)
    try:
        yield
    finally:
        CALLER.reset(token)


def may(operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
    """Returns whether the caller may perform the operation on the resource."""
    caller = CALLER.get()
    return caller is None or caller.may(operation, resource_type, name)


def may_be_shown(operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
    """Whether the caller may see the resource (`Session.may_be_shown`)."""
    caller = CALLER.get()
    return caller is None or caller.may_be_shown(operation, resource_type, name)


def may_with_cluster(*operations: AclOperation) -> bool:
    """Returns whether the caller may perform one of these operations on the cluster."""
    caller = CALLER.get()
    return caller is None or caller.may_with_cluster(*operations)


def may_be_shown_with_cluster(operation: AclOperation) -> bool:
    """Whether the caller may see the cluster (`Session.may_be_shown`)."""
    return may_be_shown(operation, ResourceType.CLUSTER, CLUSTER_NAME)


def may_with_any(operation: AclOperation, resource_type: ResourceType) -> bool:
    """Whether the caller may do the operation with any resource of the type (`Session.may_with_any`)."""
    caller = CALLER.get()
    return caller is None or caller.may_with_any(operation, resource_type)


def require(operation: AclOperation, resource_type: ResourceType, name: str) -> None:
    """Raises an error by the resource's type (TopicAuthorizationFailedError, GroupAuthorizationFailedError ...) unless
    the caller may perform the operation."""
    if not may(operation, resource_type, name):
        raise refusal(resource_type)


def require_cluster(*operations: AclOperation) -> None:
    """Raises ClusterAuthorizationFailedError unless the caller may perform one of these operations on the cluster."""
    if not may_with_cluster(*operations):
        raise refusal(ResourceType.CLUSTER)


def tell_change(event: AuditEvent) -> None:
    """Records in the audit that the caller has changed something, or failed to."""
    caller = CALLER.get()
    if caller is not None and caller.audit is not None:
        caller.audit.changed(event)


def refusal(resource_type: ResourceType) -> BrokerError:
    """Returns the error for a refused operation. It names no resource, because a caller that may not see a resource
    must not learn its name."""
    return _REFUSALS[resource_type].exception()
