"""Tests the authorizer against a naive one that looks at every access control list, and the rule that it names."""

from __future__ import annotations

import ipaddress
import uuid
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from klamm.acls import (
    AclBinding,
    AclDecision,
    AclOperation,
    AclPermissionType,
    BuiltInRule,
    PatternType,
    ResourceType,
)
from klamm_server.metadata.acl_index import AclDraft, AclIndex
from klamm_server.security.acls.authorizer import StandardAuthorizer
from tests.support.acl_strategies import BINDINGS, HOSTS, NAMES, OPERATIONS, PRINCIPALS, RESOURCE_TYPES

SETS = st.lists(BINDINGS, max_size=12, unique=True)
IMPLYING = {
    AclOperation.DESCRIBE: {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER},
    AclOperation.DESCRIBE_CONFIGS: {AclOperation.ALTER_CONFIGS},
}
ALICE, HERE = "User:alice", "10.0.0.1"
ALLOW_ALL = AclBinding(
    ResourceType.TOPIC, "*", PatternType.LITERAL, "User:*", "*", AclOperation.ALL, AclPermissionType.ALLOW
)


def index_of(acls: list[AclBinding]) -> AclIndex:
    draft = AclDraft(AclIndex())
    for number, binding in enumerate(acls):
        draft.add(uuid.UUID(int=number), binding)
    return draft.finish()


def normal(host: str) -> str:
    address = ipaddress.ip_address(host)
    return str(getattr(address, "ipv4_mapped", None) or address)


def is_from(binding: AclBinding, host: str) -> bool:
    ranges = {"10.0.0.0/31": {"10.0.0.0", "10.0.0.1"}}
    return binding.host == "*" or normal(host) in ranges.get(binding.host, {binding.host})


def is_of(binding: AclBinding, resource_type: ResourceType, name: str) -> bool:
    if binding.resource_type is not resource_type:
        return False
    if binding.pattern_type is PatternType.PREFIXED:
        return name.startswith(binding.resource_name)
    return binding.resource_name in ("*", name)


def naive(
    acls: list[AclBinding],
    principal: str,
    host: str,
    operation: AclOperation,
    resource_type: ResourceType,
    name: str,
    *,
    default: bool,
) -> bool:
    of_resource = [acl for acl in acls if is_of(acl, resource_type, name)]
    if not of_resource:
        return default
    mine = [each for each in of_resource if each.principal in (principal, "User:*") and is_from(each, host)]
    denied = {each.operation for each in mine if each.permission_type is AclPermissionType.DENY}
    allowed = {each.operation for each in mine if each.permission_type is AclPermissionType.ALLOW}
    if denied & {operation, AclOperation.ALL}:
        return False
    return bool(allowed & {operation, AclOperation.ALL, *IMPLYING.get(operation, ())})


def naive_by_type(
    acls: list[AclBinding],
    principal: str,
    host: str,
    operation: AclOperation,
    resource_type: ResourceType,
    *,
    default: bool,
) -> bool:
    """Decides by what could be permitted: an ALLOW holds unless a DENY covers its whole pattern (KIP-679)."""
    if naive(acls, principal, host, operation, resource_type, "hardcode", default=default):
        return True
    mine = [
        acl
        for acl in acls
        if acl.resource_type is resource_type
        and acl.principal in (principal, "User:*")
        and is_from(acl, host)
        and acl.operation in (operation, AclOperation.ALL)
    ]
    denying = [each for each in mine if each.permission_type is AclPermissionType.DENY]
    allowing = [each for each in mine if each.permission_type is AclPermissionType.ALLOW]
    if any(each.pattern_type is PatternType.LITERAL and each.resource_name == "*" for each in denying):
        return False

    def covers(deny: AclBinding, allow: AclBinding) -> bool:
        if allow.pattern_type is PatternType.LITERAL and allow.resource_name == "*":
            return False
        if deny.pattern_type is PatternType.PREFIXED:
            return allow.resource_name.startswith(deny.resource_name)
        return (allow.pattern_type, allow.resource_name) == (deny.pattern_type, deny.resource_name)

    return any(not any(covers(deny, allow) for deny in denying) for allow in allowing)


@given(SETS, PRINCIPALS, HOSTS, OPERATIONS, RESOURCE_TYPES, NAMES, st.booleans())
def test_the_authorizer_decides_like_a_naive_one(
    acls: list[AclBinding],
    principal: str,
    host: str,
    operation: AclOperation,
    resource_type: ResourceType,
    name: str,
    default: bool,
) -> None:
    authorizer = StandardAuthorizer(super_users=(), allow_everyone_if_no_acl_found=default)
    decision = authorizer.authorize(index_of(acls), principal, host, operation, resource_type, name)
    assert decision.is_allowed is naive(acls, principal, host, operation, resource_type, name, default=default)
    if isinstance(decision.rule, AclBinding):
        assert decision.rule in acls
        assert decision.is_allowed is (decision.rule.permission_type is AclPermissionType.ALLOW)
        alone = authorizer.authorize(index_of([decision.rule]), principal, host, operation, resource_type, name)
        assert alone == decision


@given(SETS, PRINCIPALS, HOSTS, OPERATIONS, RESOURCE_TYPES, st.booleans())
def test_the_authorizer_decides_by_resource_type_like_a_naive_one(
    acls: list[AclBinding],
    principal: str,
    host: str,
    operation: AclOperation,
    resource_type: ResourceType,
    default: bool,
) -> None:
    authorizer = StandardAuthorizer(super_users=(), allow_everyone_if_no_acl_found=default)
    decision = authorizer.authorize_by_resource_type(index_of(acls), principal, host, operation, resource_type)
    assert decision.is_allowed is naive_by_type(acls, principal, host, operation, resource_type, default=default)


@given(SETS, st.randoms(use_true_random=False), OPERATIONS, RESOURCE_TYPES, NAMES)
def test_the_order_of_acls_does_not_matter(
    acls: list[AclBinding], rng: Random, operation: AclOperation, resource_type: ResourceType, name: str
) -> None:
    authorizer = StandardAuthorizer(super_users=(), allow_everyone_if_no_acl_found=False)
    shuffled = list(acls)
    rng.shuffle(shuffled)
    one, other = (
        authorizer.authorize(index_of(each), ALICE, HERE, operation, resource_type, name) for each in (acls, shuffled)
    )
    assert one == other


def test_super_users_are_denied_nothing() -> None:
    deny = ALLOW_ALL._replace(permission_type=AclPermissionType.DENY)
    authorizer = StandardAuthorizer(super_users=[ALICE], allow_everyone_if_no_acl_found=False)
    acls = index_of([deny])
    asked = (HERE, AclOperation.WRITE, ResourceType.TOPIC)
    assert authorizer.authorize(acls, ALICE, *asked, "orders") == AclDecision(True, BuiltInRule.SUPER_USER)
    assert authorizer.authorize(acls, "User:bob", *asked, "orders") == AclDecision(False, deny)
    assert authorizer.authorize_by_resource_type(acls, ALICE, *asked) == AclDecision(True, BuiltInRule.SUPER_USER)
    assert authorizer.authorize_by_resource_type(acls, "User:bob", *asked) == AclDecision(False, deny)


def test_the_default_rule_applies_only_to_resources_without_acls() -> None:
    of_bob = ALLOW_ALL._replace(resource_name="orders", principal="User:bob")
    authorizer = StandardAuthorizer(super_users=(), allow_everyone_if_no_acl_found=True)
    acls, asked = index_of([of_bob]), (ALICE, HERE, AclOperation.READ, ResourceType.TOPIC)
    assert authorizer.authorize(acls, *asked, "other") == AclDecision(True, BuiltInRule.NO_ACL_FOUND)
    assert authorizer.authorize(acls, *asked, "orders") == AclDecision(False, BuiltInRule.NO_ACL_ALLOWS)


def test_removing_one_acl_of_a_resource_leaves_its_other_acls() -> None:
    """Kafka's authorizer lost the remaining ACLs of a resource when one of several was removed (CVE-2024-27309)."""
    denies = [
        ALLOW_ALL._replace(resource_name="orders", principal=ALICE, operation=operation, permission_type=permission)
        for operation, permission in (
            (AclOperation.WRITE, AclPermissionType.DENY),
            (AclOperation.READ, AclPermissionType.ALLOW),
            (AclOperation.WRITE, AclPermissionType.ALLOW),
        )
    ]
    draft = AclDraft(index_of([*denies, ALLOW_ALL]))
    draft.remove(uuid.UUID(int=1))
    authorizer = StandardAuthorizer(super_users=(), allow_everyone_if_no_acl_found=False)
    decision = authorizer.authorize(draft.finish(), ALICE, HERE, AclOperation.WRITE, ResourceType.TOPIC, "orders")
    assert decision == AclDecision(False, denies[0])
