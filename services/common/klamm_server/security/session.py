"""The session of the principal that makes a call, and the checks of its rights. The handlers make these checks.

A listener of either protocol sets the caller's session (`CALLER`) before it calls a handler. The handler calls `may` or
`require` for each resource. So the requests of both protocols, and forwarded requests, pass the same checks. Without an
authorizer, or while a server acts for itself, `CALLER` is None and all operations are allowed. Then a check only reads
a context variable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, TypeVar

from klamm.acls import CLUSTER_NAME, AclOperation, ResourceType
from klamm.errors import BrokerError, ErrorCode
from klamm_server.metadata.acl_index import AclIndex
from klamm_server.runtime.waiting import Waiting
from klamm_server.security.acls.authorizer import StandardAuthorizer
from klamm_server.security.acls.decisions import DecisionBudget, Decisions
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


AUDIT_IS_FULL: Final = (
    "the server's audit cannot record the change, because an output of the audit does not accept events"
    " (audit.failure.policy=reject)"
)


class Session:
    """A connected principal and its address, with the checks of its rights."""

    __slots__ = ("_acls", "_authorizer", "_decisions", "audit", "host", "principal")

    def __init__(
        self,
        authorizer: StandardAuthorizer,
        acls: Callable[[], AclIndex],
        principal: str,
        host: str,
        audit: SessionAudit | None = None,
        budget: DecisionBudget | None = None,
    ) -> None:
        """`budget` bounds the memory of the decisions that this session and others keep."""
        self.principal = principal
        self.host = host
        self.audit = audit
        """The object that records the decisions about the session in the audit log, or None if they are not
        recorded."""
        self._authorizer = authorizer
        self._acls = acls
        self._decisions = Decisions(authorizer, principal, host, budget)

    def may(self, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        """Returns True if the session may perform the operation on the resource, by the newest ACLs. The audit records
        the decision."""
        decision = self._decisions.decide(self._acls(), operation, resource_type, name)
        if self.audit is not None:
            self.audit.decided(decision, operation, resource_type, name, CALL.get())
        return decision.is_allowed

    def may_be_shown(self, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        """Returns True if the session may perform the operation on a resource that the request does not name. The audit
        does not record the decision, because the caller did not attempt to use the resource."""
        return self._decisions.decide(self._acls(), operation, resource_type, name).is_allowed

    def may_with_cluster(self, *operations: AclOperation) -> bool:
        """Returns True if the session may perform at least one of the operations on the cluster. The audit records one
        decision: the first allowed operation, or else the last one."""
        may = (
            operation for operation in operations if self.may_be_shown(operation, ResourceType.CLUSTER, CLUSTER_NAME)
        )
        return self.may(next(may, operations[-1]), ResourceType.CLUSTER, CLUSTER_NAME)

    def may_be_shown_with_cluster(self, *operations: AclOperation) -> bool:
        """Returns True if the session may perform at least one of the operations on the cluster. The audit does not
        record the decision."""
        return any(self.may_be_shown(operation, ResourceType.CLUSTER, CLUSTER_NAME) for operation in operations)

    def may_with_any(self, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Returns True if there can be a resource on which the session may perform the operation (KIP-679)."""
        return self._authorizer.authorize_by_resource_type(
            self._acls(), self.principal, self.host, operation, resource_type
        ).is_allowed


CALLER: ContextVar[Session | None] = ContextVar("caller", default=None)
"""The session of the call that is being handled, or None without an authorizer."""
CALL: ContextVar[Call] = ContextVar("call", default=Call())  # noqa: B039 - nobody writes into it
"""The request or call that is being handled. The audit records it."""


def called_by(
    session: Session, handle: Callable[[RequestT], AnswerT | Waiting[AnswerT]], request: RequestT
) -> AnswerT | Waiting[AnswerT]:
    """Returns the answer of `handle` to the session's request, immediately or as `Waiting`."""
    token = CALLER.set(session)
    try:
        answer = handle(request)
    finally:
        CALLER.reset(token)
    return Waiting(_await_as(session, answer)) if isinstance(answer, Waiting) else answer


async def _await_as(session: Session, answer: Waiting[AnswerT]) -> AnswerT:
    token = CALLER.set(session)
    try:
        return await answer
    finally:
        CALLER.reset(token)


@contextmanager
def for_itself() -> Iterator[None]:
    """Runs the block without a caller, so that the server acts for itself, because the caller's rights were checked
    already."""
    token = CALLER.set(None)
    try:
        yield
    finally:
        CALLER.reset(token)


def require_audit() -> None:
    """Raises PolicyViolationError while the audit cannot record what the caller is about to change
    (`audit.failure.policy=reject`)."""
    caller = CALLER.get()
    if caller is not None and caller.audit is not None and caller.audit.refuses_changes:
        raise ErrorCode.POLICY_VIOLATION.exception(AUDIT_IS_FULL)


def record_change(event: AuditEvent) -> None:
    """Records in the audit that the caller has changed something, or has failed to change it."""
    caller = CALLER.get()
    if caller is not None and caller.audit is not None:
        caller.audit.changed(event, CALL.get())


def refusal(resource_type: ResourceType) -> BrokerError:
    """Returns the error for a refused operation. It names no resource, because a caller that may not see a resource
    must not learn its name."""
    return _REFUSALS[resource_type].exception()
