"""Tests which ACL entries are valid."""

from __future__ import annotations

import pytest
from hypothesis import given

from klamm.acl_rules import binding_problem, host_problem
from klamm.acls import CLUSTER_NAME, AclBinding, AclOperation, AclPermissionType, PatternType, ResourceType
from tests.support.acl_strategies import BINDINGS

CLUSTER = AclBinding(
    ResourceType.CLUSTER,
    CLUSTER_NAME,
    PatternType.LITERAL,
    "User:alice",
    "*",
    AclOperation.ALTER,
    AclPermissionType.ALLOW,
)


@given(BINDINGS)
def test_each_acl_that_kafka_allows_is_accepted(binding: AclBinding) -> None:
    assert binding_problem(binding) == ""


def test_an_entry_about_the_cluster_has_the_clusters_only_name() -> None:
    assert binding_problem(CLUSTER) == ""
    assert "The only valid name" in binding_problem(CLUSTER._replace(resource_name="other"))


def test_a_principal_needs_a_type() -> None:
    assert "no colon is present" in binding_problem(CLUSTER._replace(principal="alice"))


@pytest.mark.parametrize(
    "acl_host",
    [
        "",
        "not-an-address/8",
        "10.0.0.0/33",
        "10.0.0.0/255.0.0.0",
        "10.0.0.0/",
        "10.0.0.0/8/8",
        "10.0.256.0/8",
        "2001:db8::/129",
        "2001:db8::/-1",
        "::ffff:10.0.0.0/104",
        "10.0.0.0/٨",
    ],
)
def test_an_invalid_acl_host_is_refused_by_name(acl_host: str) -> None:
    assert host_problem(acl_host)
    assert acl_host in host_problem(acl_host)
