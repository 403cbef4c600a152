"""Access control lists: the operations that principals are allowed on resources (KIP-11, KIP-290).

Names and numbers are Kafka's.

An `AclBinding` allows or denies one principal, from one host, one operation on the resources that its pattern matches.
Principals are texts `Type:name` and compare exactly.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

WILDCARD: Final = "*"
"""Every host, or every resource of the type if it is the name of a LITERAL pattern."""
WILDCARD_PRINCIPAL: Final = "User:*"
"""Every principal, and clients that are not authenticated."""
ANONYMOUS: Final = "User:ANONYMOUS"
"""The principal of a client that is not authenticated."""
CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the one resource of type CLUSTER."""


class _Code(IntEnum):
    """Kafka's numbers; one that it does not have is UNKNOWN."""

    @classmethod
    def _missing_(cls, value: object) -> _Code:
        return cls(0)

    __hash__ = int.__hash__
    """They equal their numbers, and an enumeration's own hash is a call of Python's."""


class ResourceType(_Code):
    """Kinds of resources; ANY is for filters only."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(_Code):
    """How a pattern's name is compared; ANY and MATCH are for filters only."""

    UNKNOWN = 0
    ANY = 1
    """LITERAL and PREFIXED patterns of exactly the filter's name."""
    MATCH = 2
    """All patterns that match the resource of the filter's name."""
    LITERAL = 3
    """The name itself; `*` is every name."""
    PREFIXED = 4
    """All names that begin with it."""


class AclOperation(_Code):
    """An operation on a resource. Only filters may have ANY. ALL means every operation."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermissionType(_Code):
    """What an entry says; ANY is for filters only."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class BuiltInRule(_Code):
    """The rule that decides if no entry matches."""

    UNKNOWN = 0
    SUPER_USER = 1
    """The principal is among `super.users`."""
    NO_ACL_FOUND = 2
    """No entry's pattern matches the resource: `allow.everyone.if.no.acl.found` decides."""
    NO_ACL_ALLOWS = 3
    """Entries match the resource, and none of them allows it."""


class AclBinding(NamedTuple):
    """One entry; equal ones are the same entry."""

    resource_type: ResourceType
    resource_name: str
    pattern_type: PatternType
    principal: str
    host: str
    operation: AclOperation
    permission_type: AclPermissionType

    def __str__(self) -> str:
        """`ALLOW User:alice READ TOPIC PREFIXED 'orders-' from *`."""
        return (
            f"{self.permission_type.name} {self.principal} {self.operation.name} {self.resource_type.name}"
            f" {self.pattern_type.name} {self.resource_name!r} from {self.host}"
        )


class AclDecision(NamedTuple):
    """Whether somebody may do something, and the rule that decides."""

    is_allowed: bool
    rule: AclBinding | BuiltInRule


class AclBindingFilter(NamedTuple):
    """Which bindings are meant; None and ANY are every value."""

    resource_type: ResourceType = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission_type: AclPermissionType = AclPermissionType.ANY

    def matches(self, binding: AclBinding) -> bool:
        """Whether the binding is meant, as Kafka's AclBindingFilter.matches says."""
        return (
            self.resource_type in (ResourceType.ANY, binding.resource_type)
            and self._means_pattern(binding)
            and self.principal in (None, binding.principal)
            and self.host in (None, binding.host)
            and self.operation in (AclOperation.ANY, binding.operation)
            and self.permission_type in (AclPermissionType.ANY, binding.permission_type)
        )

    def _means_pattern(self, binding: AclBinding) -> bool:
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, binding.pattern_type):
            return False
        if self.resource_name is None or self.resource_name == binding.resource_name:
            return True
        return self.pattern_type is PatternType.MATCH and pattern_matches(binding, self.resource_name)

    @property
    def problem(self) -> str:
        """Which of its values is no value, in Kafka's words; or nothing."""
        if not (self.resource_type and self.pattern_type):
            return "Unknown patternFilter."
        if not (self.operation and self.permission_type):
            return "Unknown entryFilter."
        return ""


def pattern_matches(binding: AclBinding, resource_name: str) -> bool:
    """Whether the binding's pattern matches the resource of that name, which is of the binding's type."""
    if binding.pattern_type is PatternType.PREFIXED:
        return resource_name.startswith(binding.resource_name)
    return binding.resource_name in (WILDCARD, resource_name)
