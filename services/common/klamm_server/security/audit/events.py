"""The events of the audit. Equal events differ only in their time, and are counted.

No field has a body of a request, a value of a config, a password or a token."""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from klamm.acls import AclBinding, AclDecision, BuiltInRule

TEXT_MAX: Final = 256
"""The maximum length of a field. Clients choose most texts, and they may be long."""


class Category(Enum):
    """The kinds of events among which `audit.events` chooses."""

    AUTHENTICATION = "authentication"
    DENIED = "authorization.denied"
    ALLOWED = "authorization.allowed"
    PRODUCE = "produce"
    CONSUME = "consume"
    MANAGEMENT = "management"

    __hash__ = object.__hash__


class Activity(Enum):
    """The kinds of activities, for classes of events that distinguish them."""

    LOGON = "logon"
    CREATE = "create"
    READ = "read"
    UPDATE = "update"
    DELETE = "delete"
    OTHER = "other"
    CHANGE_PASSWORD = "password change"
    ATTACH_POLICY = "attach policy"
    DETACH_POLICY = "detach policy"

    __hash__ = object.__hash__


class AuditEvent(NamedTuple):
    """One audit event. A text is empty if it does not apply."""

    category: Category
    activity: Activity
    is_allowed: bool
    """True if the operation was allowed or succeeded."""
    principal: str
    """The principal as `Type:name`. For a failed login, it is the name that the client gave."""
    host: str
    """The client's address."""
    client_id: str = ""
    """The client id that the client gave."""
    api: str = ""
    """The request's or call's name, as CREATE_TOPICS or CreateTopics."""
    mechanism: str = ""
    """The mechanism that the client logged in by."""
    listener: str = ""
    """The listener that the client uses."""
    operation: str = ""
    """The operation on the resource, for example READ."""
    resource_type: str = ""
    """The type of the resource, for example TOPIC."""
    resource_name: str = ""
    rule: str = ""
    """The rule that decided: `super.users`, `default`, `no ACL allows it`, or the ACL entry."""
    detail: str = ""
    """The reason of a failed login, the code of an error, or the changed configs."""
    account: str = ""
    """The user whose password or rights were changed, or empty."""

    def within_bounds(self) -> AuditEvent:
        """Returns the event with all texts cut to TEXT_MAX."""
        if len(max(self[3:], key=len)) <= TEXT_MAX:
            return self
        return AuditEvent(*self[:3], *(text[:TEXT_MAX] for text in self[3:]))


SUPER_USER, DEFAULT, NO_ACL_ALLOWS = "super.users", "default", "no ACL allows it"
_BUILT_IN: Final = {
    BuiltInRule.SUPER_USER: SUPER_USER,
    BuiltInRule.NO_ACL_FOUND: DEFAULT,
    BuiltInRule.NO_ACL_ALLOWS: NO_ACL_ALLOWS,
}


def rule_of(decision: AclDecision) -> str:
    """Returns the rule that decided, in words."""
    return str(decision.rule) if isinstance(decision.rule, AclBinding) else _BUILT_IN[decision.rule]
