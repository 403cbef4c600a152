"""Tests the Admin's calls about access control entries through a controller's decisions and back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from klamm.acls import (
    AclBinding,
    AclBindingFilter,
    AclDecision,
    AclOperation,
    AclPermissionType,
    BuiltInRule,
    PatternType,
    ResourceType,
)
from klamm.admin.async_acls import AclOperations
from klamm.errors import EXCEPTIONS, ErrorCode
from tests.support.acl_controller import AclController

ORDERS = AclBinding(
    ResourceType.TOPIC, "orders", PatternType.LITERAL, "User:a", "*", AclOperation.READ, AclPermissionType.ALLOW
)
TEAM = ORDERS._replace(resource_name="team-", pattern_type=PatternType.PREFIXED)
GROUP = ORDERS._replace(resource_type=ResourceType.GROUP)
TOPICS = AclBindingFilter(resource_type=ResourceType.TOPIC)


class Admin(AclOperations):
    """An Admin that asks a controller which decides at once."""

    def __init__(self, controller: Any) -> None:
        self._calls = controller


def test_acls_are_created_described_and_deleted() -> None:
    async def run() -> None:
        admin = Admin(AclController())
        await admin.create_acls([ORDERS, TEAM, GROUP])
        await admin.create_acls([TEAM])
        assert await admin.describe_acls() == (ORDERS, TEAM, GROUP)
        assert await admin.describe_acls(TOPICS) == (ORDERS, TEAM)
        prefixed = AclBindingFilter(pattern_type=PatternType.PREFIXED)
        assert await admin.delete_acls([TOPICS, prefixed]) == {TOPICS: (ORDERS, TEAM), prefixed: (TEAM,)}
        assert await admin.describe_acls() == (GROUP,)

    asyncio.run(run())


def test_the_first_refused_acl_is_raised_with_the_other_refusals_as_notes() -> None:
    async def run() -> None:
        admin = Admin(AclController())
        bad = [ORDERS._replace(principal="nobody"), ORDERS._replace(host="10.0.0.0/99")]
        with pytest.raises(
            EXCEPTIONS[ErrorCode.INVALID_REQUEST], match="Could not parse principal from `nobody`"
        ) as got:
            await admin.create_acls([bad[0], TEAM, bad[1]])
        (note,) = got.value.__notes__
        assert "10.0.0.0/99" in note
        assert await admin.describe_acls() == (TEAM,)
        unknown = AclBindingFilter(operation=AclOperation.UNKNOWN)
        with pytest.raises(EXCEPTIONS[ErrorCode.INVALID_REQUEST], match="Unknown entryFilter"):
            await admin.delete_acls([unknown, TOPICS])
        assert await admin.describe_acls() == ()
        with pytest.raises(EXCEPTIONS[ErrorCode.INVALID_REQUEST], match="Unknown entryFilter"):
            await admin.describe_acls(unknown)

    asyncio.run(run())


def test_check_acl_returns_the_rule_that_decides() -> None:
    async def run() -> None:
        admin = Admin(AclController())
        here = ORDERS._replace(host="10.0.0.1")
        asked = (AclOperation.READ, ResourceType.TOPIC, "orders")
        assert await admin.check_acl("User:root", *asked) == AclDecision(True, BuiltInRule.SUPER_USER)
        assert await admin.check_acl("User:a", *asked) == AclDecision(False, BuiltInRule.NO_ACL_FOUND)
        await admin.create_acls([here])
        assert await admin.check_acl("User:a", *asked) == AclDecision(False, BuiltInRule.NO_ACL_ALLOWS)
        assert await admin.check_acl("User:a", *asked, host="10.0.0.1") == AclDecision(True, here)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (("nobody", AclOperation.READ, ResourceType.TOPIC, "t"), "Could not parse principal from `nobody`"),
        (("User:a", AclOperation.ALL, ResourceType.TOPIC, "t"), "Invalid operation ALL"),
        (("User:a", AclOperation.READ, ResourceType.ANY, "t"), "Invalid resourceType ANY"),
        (("User:a", AclOperation.READ, ResourceType.TOPIC, ""), "Invalid empty resource name"),
        (("User:a", AclOperation.READ, ResourceType.CLUSTER, "c"), "only valid name for the CLUSTER resource"),
    ],
)
def test_check_acl_refuses_a_principal_or_operation_that_no_request_can_have(
    asked: tuple[str, AclOperation, ResourceType, str], told: str
) -> None:
    admin = Admin(AclController())
    with pytest.raises(EXCEPTIONS[ErrorCode.INVALID_REQUEST], match=told):
        asyncio.run(admin.check_acl(*asked))


def test_every_acl_call_raises_if_the_cluster_has_no_authorizer() -> None:
    async def run() -> None:
        admin = Admin(AclController(ErrorCode.SECURITY_DISABLED))
        for call in (admin.create_acls([ORDERS]), admin.describe_acls(), admin.delete_acls([TOPICS])):
            with pytest.raises(EXCEPTIONS[ErrorCode.SECURITY_DISABLED]):
                await call

    asyncio.run(run())
