"""Access control lists: the operations that principals are allowed on resources (KIP-11, KIP-290).

Names and numbers are Kafka's.

An `AclBinding` allows or denies one principal, from one host, one operation on the resources that its pattern matches.
Principals are texts `Type:name` and compare exactly.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

WILDCARD: Final = "*"
"""Stands for every host. As the name of a LITERAL pattern, it stands for every resource of the type."""
WILDCARD_PRINCIPAL: Final = "User:*"
"""The principal that stands for all clients, including clients that are not authenticated."""
ANONYMOUS: Final = "User:ANONYMOUS"
"""The principal of a client that is not authenticated."""
CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the one resource of type CLUSTER."""


class _Code(IntEnum):
    """An enumeration with Kafka's numbers. A number that Kafka does not have becomes UNKNOWN."""

    @classmethod
    def _missing_(cls, value: object) -> _Code:
        return cls(0)

    __hash__ = int.__hash__
    """Members equal their numbers, so they hash alike. An enumeration's own hash is a slow call of a Python
    function.
    """


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
    """LITERAL and PREFIXED patterns with exactly the filter's name."""
    MATCH = 2
    """All patterns that match the resource with the filter's name."""
    LITERAL = 3
    """Matches the resource with exactly that name. The name `*` matches every resource."""
    PREFIXED = 4
    """Matches all resources whose name begins with the pattern's name."""


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
    """The permission of an entry: allow or deny. ANY is for filters only."""

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
    """One ACL entry. Entries with equal fields are the same entry."""

    resource_type: ResourceType
    resource_name: str
    pattern_type: PatternType
    principal: str
    host: str
    operation: AclOperation
    permission_type: AclPermissionType

    def __str__(self) -> str:
        """Returns the entry as text, for example `ALLOW User:alice READ TOPIC PREFIXED 'orders-' from *`."""
        return (
            f"{self.permission_type.name} {self.principal} {self.operation.name} {self.resource_type.name}"
            f" {self.pattern_type.name} {self.resource_name!r} from {self.host}"
        )


class AclDecision(NamedTuple):
    """The decision whether a principal may perform an operation, and the rule that decided."""

    is_allowed: bool
    rule: AclBinding | BuiltInRule


class AclBindingFilter(NamedTuple):
    """A filter that selects bindings. None and ANY match every value."""

    resource_type: ResourceType = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission_type: AclPermissionType = AclPermissionType.ANY

    def matches(self, binding: AclBinding) -> bool:
        """Returns whether the binding matches the filter (Kafka's AclBindingFilter.matches)."""
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
        """Returns why the filter is invalid, in Kafka's words, or empty text."""
        if not (self.resource_type and self.pattern_type):
            return "Unknown patternFilter."
        if not (self.operation and self.permission_type):
            return "Unknown entryFilter."
        return ""


def pattern_matches(binding: AclBinding, resource_name: str) -> bool:
    """Returns whether the binding's pattern matches the resource of that name. The resource must be of the binding's
    type."""
    if binding.pattern_type is PatternType.PREFIXED:
        return resource_name.startswith(binding.resource_name)
    return binding.resource_name in (WILDCARD, resource_name)
