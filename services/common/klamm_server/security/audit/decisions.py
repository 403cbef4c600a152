"""Reports the authorizer's decisions about one session to the audit.

The session counts allowed operations as long as its tally is open. So a client that writes all the time causes one
event a minute, and each operation costs one look-up in a mapping. Refusals are rare, and the audit trail counts them.

A client chooses its id and the names. So a session keeps no long ones, and all sessions together keep at most
`KEPT_MAX_BYTES`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from klamm.acls import AclDecision, AclOperation, ResourceType
from klamm_server.security.acls.decisions import KEPT_NAME_MAX
from klamm_server.security.audit.events import Activity, AuditEvent, Category, rule_of
from klamm_server.security.audit.tallies import Tally
from klamm_server.security.audit.trail import AuditTrail

TALLIES_MAX: Final = 1_000
"""The maximum number of tallies of one session. A session that has more starts again without any."""
_OVERHEAD_BYTES: Final = 600
"""The size of a session's entry for a tally without its texts. A character counts as four bytes."""


class Call(NamedTuple):
    """The request or call that a decision is about."""

    api: str = ""
    client_id: str = ""
    listener: str = ""
    """The listener that the client uses. A forwarded call has the listener of the server that forwards it."""


_ACTIVITIES: Final = {
    AclOperation.READ: Activity.READ,
    AclOperation.DESCRIBE: Activity.READ,
    AclOperation.DESCRIBE_CONFIGS: Activity.READ,
    AclOperation.CREATE: Activity.CREATE,
    AclOperation.WRITE: Activity.UPDATE,
    AclOperation.ALTER: Activity.UPDATE,
    AclOperation.ALTER_CONFIGS: Activity.UPDATE,
    AclOperation.DELETE: Activity.DELETE,
}


class SessionAudit:
    """Reports the decisions about one principal at one address."""

    __slots__ = (
        "__weakref__",
        "_allowed",
        "_host",
        "_now_ms",
        "_principal",
        "_ref",
        "_trail",
        "wants_allowed",
        "wants_denied",
    )

    def __init__(self, trail: AuditTrail, now_ms: Callable[[], int], principal: str, host: str) -> None:
        self._trail = trail
        self._now_ms = now_ms
        self._principal = principal
        self._host = host
        self._ref = trail.budget.ref_of(self)
        self._allowed: dict[tuple[Call, AclOperation, ResourceType, str], tuple[Tally, AclDecision]] = {}
        self.wants_allowed = trail.wants(Category.ALLOWED, Category.PRODUCE, Category.CONSUME)
        self.wants_denied = trail.wants(Category.DENIED)

    def decided(
        self, decision: AclDecision, operation: AclOperation, resource_type: ResourceType, name: str, call: Call
    ) -> None:
        """Records that the session asked for an operation, which was allowed or denied."""
        if not decision.is_allowed:
            if self.wants_denied:
                self._record(Category.DENIED, decision, operation, resource_type, name, call)
            return
        if not self.wants_allowed:
            return
        key = (call, operation, resource_type, name)
        kept = self._allowed.get(key)
        if kept is not None and kept[0].is_open and kept[1] is decision:
            kept[0].count += 1
            return
        category = _category(operation, resource_type)
        if self._trail.wants(category):
            tally = self._record(category, decision, operation, resource_type, name, call)
            if tally is not None:
                self._keep(key, tally, decision)

    def clear(self) -> None:
        """Forgets the session's tallies. The trail reports them."""
        self._allowed.clear()
        self._trail.budget.give_back(self._ref)

    @property
    def refuses_changes(self) -> bool:
        """True while the session may change nothing (`AuditTrail.refuses_changes`)."""
        return self._trail.refuses_changes

    def changed(self, event: AuditEvent, call: Call) -> None:
        """Records that the session has changed something, or that a change failed."""
        if self._trail.wants(Category.MANAGEMENT):
            whose = event._replace(
                principal=self._principal, host=self._host, client_id=call.client_id, listener=call.listener
            )
            self._trail.record(whose, self._now_ms())

    def _record(
        self,
        category: Category,
        decision: AclDecision,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        call: Call,
    ) -> Tally | None:
        if resource_type is ResourceType.TOPIC and self._trail.is_excluded(name):
            return None
        event = AuditEvent(
            category,
            _ACTIVITIES.get(operation, Activity.OTHER),
            decision.is_allowed,
            self._principal,
            self._host,
            client_id=call.client_id,
            api=call.api,
            listener=call.listener,
            operation=operation.name,
            resource_type=resource_type.name,
            resource_name=name,
            rule=rule_of(decision),
        )
        return self._trail.record(event, self._now_ms())

    def _keep(self, key: tuple[Call, AclOperation, ResourceType, str], tally: Tally, decision: AclDecision) -> None:
        call, _, _, name = key
        if key not in self._allowed:
            if len(call.client_id) + len(name) > KEPT_NAME_MAX:
                return
            if len(self._allowed) >= TALLIES_MAX:
                self.clear()
            self._trail.budget.take(self._ref, _OVERHEAD_BYTES + 4 * (len(call.client_id) + len(name)))
        self._allowed[key] = tally, decision


def _category(operation: AclOperation, resource_type: ResourceType) -> Category:
    if resource_type is ResourceType.TOPIC and operation is AclOperation.WRITE:
        return Category.PRODUCE
    if resource_type is ResourceType.TOPIC and operation is AclOperation.READ:
        return Category.CONSUME
    return Category.ALLOWED
