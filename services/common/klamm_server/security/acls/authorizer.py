"""Whether a principal may do something with a resource: the rules of Kafka's StandardAuthorizer.

A super user may do everything. Otherwise the access control lists whose pattern matches the resource decide: of those
for this principal (or `User:*`), host and operation, one that denies outweighs all that allow. If no list at all
matches the resource, for any principal, the default rule holds; if some do and none of them allows it, it is denied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from klamm.acls import (
    WILDCARD,
    WILDCARD_PRINCIPAL,
    AclBinding,
    AclDecision,
    AclOperation,
    AclPermissionType,
    BuiltInRule,
    PatternType,
    ResourceType,
)
from klamm_server.metadata.acl_index import AclIndex, PatternAcls
from klamm_server.security.acls.hosts import host_matches

_IMPLIED_BY: Final = {
    AclOperation.DESCRIBE: frozenset(
        (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER),
    ),
    AclOperation.DESCRIBE_CONFIGS: frozenset((AclOperation.ALTER_CONFIGS,)),
}
"""The operations that imply each operation. A principal that is allowed one of them is allowed the operation too. A
denial of one of them does not deny the operation."""
_ANY_NAME: Final = "hardcode"
"""A name that stands for any resource. With it, Kafka lets super users and the default rule decide."""


class StandardAuthorizer:
    """Decides by the settings. The access control lists are an argument."""

    def __init__(self, *, super_users: Iterable[str], allow_everyone_if_no_acl_found: bool) -> None:
        self._super_users = frozenset(super_users)
        self._allow_everyone_if_no_acl_found = allow_everyone_if_no_acl_found

    def is_super_user(self, principal: str) -> bool:
        """Returns whether the principal may do everything, whatever the access control lists say."""
        return principal in self._super_users

    def authorize(
        self,
        acls: AclIndex,
        principal: str,
        host: str,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
    ) -> AclDecision:
        """Returns the decision whether `principal` (`Type:name`) at the address `host` may perform the operation on the
        resource."""
        if principal in self._super_users:
            return AclDecision(True, BuiltInRule.SUPER_USER)
        patterns = acls.of_resource(resource_type, name)
        if not patterns:
            return AclDecision(self._allow_everyone_if_no_acl_found, BuiltInRule.NO_ACL_FOUND)
        allowing: AclBinding | None = None
        for binding in _of_caller(patterns, principal, host):
            if binding.permission_type is AclPermissionType.DENY:
                if binding.operation in (operation, AclOperation.ALL):
                    return AclDecision(False, binding)
            elif allowing is None and _allows(binding.operation, operation):
                allowing = binding
        if allowing is None:
            return AclDecision(False, BuiltInRule.NO_ACL_ALLOWS)
        return AclDecision(True, allowing)

    def authorize_by_resource_type(
        self, acls: AclIndex, principal: str, host: str, operation: AclOperation, resource_type: ResourceType
    ) -> AclDecision:
        """Returns whether the principal may perform the operation on any resource of the type (KIP-679). Here,
        operations imply no others."""
        of_any = self.authorize(acls, principal, host, operation, resource_type, _ANY_NAME)
        if of_any.is_allowed:
            return of_any
        bindings = [
            binding
            for binding in _of_caller(acls.of_type(resource_type).patterns(), principal, host)
            if binding.operation in (operation, AclOperation.ALL)
        ]
        denying = [binding for binding in bindings if binding.permission_type is AclPermissionType.DENY]
        for binding in denying:
            if _is_wildcard(binding):
                return AclDecision(False, binding)
        denied = {(binding.pattern_type, binding.resource_name) for binding in denying}
        for binding in bindings:
            if binding.permission_type is AclPermissionType.ALLOW and not _is_dominated(binding, denied):
                return AclDecision(True, binding)
        return AclDecision(False, BuiltInRule.NO_ACL_ALLOWS)


def _of_caller(patterns: Iterable[PatternAcls], principal: str, host: str) -> Iterator[AclBinding]:
    for of_pattern in patterns:
        for of_whom in (principal, WILDCARD_PRINCIPAL):
            for binding in of_pattern.get(of_whom, ()):
                if host_matches(binding.host, host):
                    yield binding


def _allows(allowed: AclOperation, operation: AclOperation) -> bool:
    return allowed in (operation, AclOperation.ALL) or allowed in _IMPLIED_BY.get(operation, ())


def _is_wildcard(binding: AclBinding) -> bool:
    return binding.pattern_type is PatternType.LITERAL and binding.resource_name == WILDCARD


def _is_dominated(allowing: AclBinding, denied: set[tuple[PatternType, str]]) -> bool:
    """Returns whether a denial covers everything that the binding allows: of its own name, or of a prefix of it."""
    if _is_wildcard(allowing):
        return False
    name = allowing.resource_name
    if allowing.pattern_type is PatternType.LITERAL and (PatternType.LITERAL, name) in denied:
        return True
    return any((PatternType.PREFIXED, name[:end]) in denied for end in range(1, len(name) + 1))
