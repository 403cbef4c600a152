"""Tests filters of access control lists against Kafka's ResourcePatternFilter and AccessControlEntryFilter."""

from __future__ import annotations

import pytest
from hypothesis import given

from klamm.acls import AclBinding, AclBindingFilter, AclOperation, AclPermissionType, PatternType, ResourceType
from tests.support.acl_strategies import BINDINGS

BINDING = AclBinding(
    ResourceType.TOPIC,
    "orders",
    PatternType.LITERAL,
    "User:alice",
    "*",
    AclOperation.READ,
    AclPermissionType.ALLOW,
)
PREFIX = BINDING._replace(resource_name="ord", pattern_type=PatternType.PREFIXED)
EVERY = BINDING._replace(resource_name="*")


@given(BINDINGS)
def test_an_empty_filter_matches_each_binding_and_a_full_filter_its_own(binding: AclBinding) -> None:
    assert AclBindingFilter().matches(binding)
    assert AclBindingFilter(*binding).matches(binding)


@pytest.mark.parametrize(
    ("pattern_type", "name", "meant"),
    [
        (PatternType.ANY, "orders", [BINDING]),
        (PatternType.ANY, "ord", [PREFIX]),
        (PatternType.ANY, "*", [EVERY]),
        (PatternType.ANY, None, [BINDING, PREFIX, EVERY]),
        (PatternType.MATCH, "orders", [BINDING, PREFIX, EVERY]),
        (PatternType.MATCH, "ordinary", [PREFIX, EVERY]),
        (PatternType.MATCH, "or", [EVERY]),
        (PatternType.LITERAL, "orders", [BINDING]),
        (PatternType.LITERAL, None, [BINDING, EVERY]),
        (PatternType.PREFIXED, "ord", [PREFIX]),
        (PatternType.PREFIXED, "orders", []),
    ],
)
def test_resource_name_filters_match_as_in_kafka(
    pattern_type: PatternType, name: str | None, meant: list[AclBinding]
) -> None:
    asked = AclBindingFilter(resource_name=name, pattern_type=pattern_type)
    assert [binding for binding in (BINDING, PREFIX, EVERY) if asked.matches(binding)] == meant


@pytest.mark.parametrize(
    "other",
    [
        AclBindingFilter(resource_type=ResourceType.GROUP),
        AclBindingFilter(principal="User:bob"),
        AclBindingFilter(principal="User:*"),
        AclBindingFilter(host="10.0.0.1"),
        AclBindingFilter(operation=AclOperation.DESCRIBE),
        AclBindingFilter(operation=AclOperation.ALL),
        AclBindingFilter(permission_type=AclPermissionType.DENY),
    ],
)
def test_a_filter_with_another_value_does_not_match(other: AclBindingFilter) -> None:
    assert not other.matches(BINDING)


def test_acl_enums_are_found_by_number_and_unknown_numbers_are_unknown() -> None:
    assert {2: "topic"}[ResourceType.TOPIC] == "topic"
    assert ResourceType(77) is ResourceType.UNKNOWN


def test_a_binding_reads_as_a_sentence() -> None:
    assert str(PREFIX) == "ALLOW User:alice READ TOPIC PREFIXED 'ord' from *"
