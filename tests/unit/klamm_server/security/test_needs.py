"""Tests the needs that handlers check, with the rights of a caller."""

from __future__ import annotations

import pytest

from klamm.acls import CLUSTER_NAME, AclOperation, ResourceType
from klamm.errors import EXCEPTIONS, ErrorCode
from klamm_server.security.needs import (
    ALTER_CONFIGS,
    CREATE_TOPIC,
    DESCRIBE_GROUP,
    DESCRIBE_TOPIC,
    DESCRIBE_TRANSACTION,
    GROUP_SHOWN,
    IDEMPOTENT_WRITE,
    READ_TOPIC,
    TOPIC_SHOWN,
    WRITE_INTERNAL_TOPIC,
    WRITE_TOPIC,
    WRITE_TRANSACTION,
    Need,
)
from klamm_server.security.session import CALLER, for_itself
from tests.support.callers import ALICE, allow, called_with

READ_ORDERS = allow(AclOperation.READ, ResourceType.TOPIC, "orders")
WRITE_ORDERS = allow(AclOperation.WRITE, ResourceType.TOPIC, "orders")
ALTER_CLUSTER_CONFIGS = allow(AclOperation.ALTER_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME)


def test_without_a_caller_every_need_is_met() -> None:
    assert CALLER.get() is None
    assert READ_TOPIC.allows("orders")
    assert TOPIC_SHOWN.shows("orders")
    assert IDEMPOTENT_WRITE.allows_any()
    WRITE_TRANSACTION.require("t")
    WRITE_INTERNAL_TOPIC.require()


def test_a_caller_meets_the_needs_that_its_acls_allow() -> None:
    with called_with(READ_ORDERS, ALTER_CLUSTER_CONFIGS):
        assert READ_TOPIC.allows("orders")
        assert not READ_TOPIC.allows("payments")
        assert not WRITE_TOPIC.allows("orders")
        assert TOPIC_SHOWN.shows("orders"), "READ implies DESCRIBE"
        assert not TOPIC_SHOWN.shows("payments")
        assert ALTER_CONFIGS[ResourceType.CLUSTER].allows("the name of a broker")
        assert not ALTER_CONFIGS[ResourceType.TOPIC].allows("orders")
        with for_itself():
            assert WRITE_TOPIC.allows("orders")
        assert not WRITE_TOPIC.allows("orders")


@pytest.mark.parametrize(
    ("resource_type", "name"), [(ResourceType.CLUSTER, CLUSTER_NAME), (ResourceType.TOPIC, "orders")]
)
def test_one_of_several_rights_is_enough(resource_type: ResourceType, name: str) -> None:
    with called_with(allow(AclOperation.CREATE, resource_type, name)):
        assert CREATE_TOPIC.allows("orders")
        assert CREATE_TOPIC.allows("payments") is (resource_type is ResourceType.CLUSTER)
    with called_with(allow(AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)):
        assert GROUP_SHOWN.shows("g")


@pytest.mark.parametrize(
    "rights", [WRITE_ORDERS, allow(AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME)]
)
def test_an_idempotent_producer_needs_any_topic_or_the_cluster(rights: object) -> None:
    with called_with(rights):
        assert IDEMPOTENT_WRITE.allows_any()
    with called_with(READ_ORDERS):
        assert not IDEMPOTENT_WRITE.allows_any()


@pytest.mark.parametrize(
    ("need", "code"),
    [
        (DESCRIBE_TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (DESCRIBE_GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
        (ALTER_CONFIGS[ResourceType.CLUSTER], ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (DESCRIBE_TRANSACTION, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (WRITE_INTERNAL_TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (CREATE_TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ],
)
def test_a_refusal_names_neither_the_resource_nor_the_principal(need: Need, code: ErrorCode) -> None:
    with called_with(), pytest.raises(EXCEPTIONS[code]) as refused:
        need.require("canary")
    assert "canary" not in str(refused.value)
    assert ALICE not in str(refused.value)
