"""Tests the calls about access control entries: decided with an authorizer, refused without one."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

from klamm.acls import (
    AclBinding,
    AclBindingFilter,
    AclDecision,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
)
from klamm.errors import ErrorCode
from klamm.wire.acls import binding_message, binding_of, decision_of, filter_message
from klamm.wire.v1 import controller_pb2 as pb
from klamm_controller.metadata.decision import Decision
from klamm_controller.rpc.acls import AclsRpcs
from klamm_server.metadata.image import MetadataImage
from klamm_server.metadata.replay import replay
from klamm_server.security.acls.authorizer import StandardAuthorizer

ORDERS = AclBinding(
    ResourceType.TOPIC, "orders", PatternType.LITERAL, "User:a", "*", AclOperation.READ, AclPermissionType.ALLOW
)
CREATE = pb.CreateAclsRequest(creations=[binding_message(ORDERS)])
DELETE = pb.DeleteAclsRequest(filters=[filter_message(AclBindingFilter())])
CHECK = pb.CheckAclRequest(
    principal="User:a", operation=AclOperation.READ, resource_type=ResourceType.TOPIC, resource_name="orders"
)
AUTHORIZER = StandardAuthorizer(super_users=(), allow_everyone_if_no_acl_found=False)
DESCRIBE = pb.DescribeAclsRequest(filter=filter_message(AclBindingFilter()))


class Gateway:
    """A gateway that decides at once on an image of its own. It also plays its controller."""

    def __init__(self) -> None:
        self.controller = self
        self.image = MetadataImage.empty()

    async def submit(self, name: str, decide: Callable[[MetadataImage], Decision[Any]]) -> Any:
        decision = decide(self.image)
        self.image = replay(self.image, decision.records, self.image.end_index + len(decision.records))
        return decision.reply

    async def change(self, decided: Awaitable[Any], response: Any, *, timeout_ms: int = 0) -> Any:
        return await decided

    async def read(self, describe: Callable[[MetadataImage], Any], response: Any) -> Any:
        return describe(self.image)


def call(rpcs: AclsRpcs) -> list[Any]:
    async def all_of_them() -> list[Any]:
        context: Any = None
        return [
            await rpcs.create_acls(CREATE, context),
            await rpcs.describe_acls(DESCRIBE, context),
            await rpcs.check_acl(CHECK, context),
            await rpcs.delete_acls(DELETE, context),
        ]

    return asyncio.run(all_of_them())


def test_acl_calls_are_handled_with_an_authorizer() -> None:
    gateway: Any = Gateway()
    created, described, checked, deleted = call(AclsRpcs(gateway, random.Random(1), AUTHORIZER))
    assert [result.error_code for result in created.results] == [ErrorCode.NONE]
    assert [binding_of(acl) for acl in described.acls] == [ORDERS]
    assert decision_of(checked) == AclDecision(True, ORDERS)
    assert [[binding_of(one) for one in result.removed] for result in deleted.results] == [[ORDERS]]
    assert gateway.image.end_index == 2


def test_acl_calls_are_refused_without_an_authorizer() -> None:
    gateway: Any = Gateway()
    for answer in call(AclsRpcs(gateway, random.Random(1), None)):
        assert answer.error_code == ErrorCode.SECURITY_DISABLED
        assert answer.error_message == "this cluster has no authorizer"
    assert gateway.image.end_index == 0
