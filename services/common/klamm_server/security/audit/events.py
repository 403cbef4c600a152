"""What an audit tells. Events that are equal differ in their time only, and are counted.

No field has a body of a request, a value of a config, a password or a token.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from klamm.acls import AclBinding, AclDecision, BuiltInRule

TEXT_MAX: Final = 256
"""Characters of a field: most are a client's word, and may be long."""


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
    """What kind of thing was done, for classes of events that tell them apart."""

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
    """One; texts are empty where there is nothing to say."""

    category: Category
    activity: Activity
    is_allowed: bool
    """Whether it was allowed, or went well."""
    principal: str
    """`Type:name`; of a failed login by the client's own word."""
    host: str
    """The client's address."""
    client_id: str = ""
    """The client's word."""
    api: str = ""
    """The request's or call's name, as CREATE_TOPICS or CreateTopics."""
    mechanism: str = ""
    """The mechanism that the client logged in by."""
    listener: str = ""
    """The listener where it logged in."""
    operation: str = ""
    """What it wanted to do with the resource, as READ."""
    resource_type: str = ""
    """The type of the resource, for example TOPIC."""
    resource_name: str = ""
    rule: str = ""
    """What decided: `super.users`, `default`, `no ACL allows it`, or the entry."""
    detail: str = ""
    """Why a login failed, the code of an error, or which configs were changed."""
    account: str = ""
    """Whose password or rights were changed; empty: nobody's."""

    def within_bounds(self) -> AuditEvent:
        """The event, with no text longer than TEXT_MAX."""
        if len(max(self[3:], key=len)) <= TEXT_MAX:
            return self
        return AuditEvent(*self[:3], *(text[:TEXT_MAX] for text in self[3:]))


_BUILT_IN: Final = {
    BuiltInRule.SUPER_USER: "super.users",
    BuiltInRule.NO_ACL_FOUND: "default",
    BuiltInRule.NO_ACL_ALLOWS: "no ACL allows it",
}


def rule_of(decision: AclDecision) -> str:
    """What decided, in words."""
    return str(decision.rule) if isinstance(decision.rule, AclBinding) else _BUILT_IN[decision.rule]
