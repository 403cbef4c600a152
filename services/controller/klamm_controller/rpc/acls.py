"""The calls of the Admin service about access control entries."""

from __future__ import annotations

import random
from typing import Final, TypedDict

from klamm.errors import ErrorCode
from klamm.wire.calls import CallContext
from klamm.wire.v1.controller_pb2 import (
    CheckAclRequest,
    CheckAclResponse,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from klamm_controller.metadata.acls import check_acl, describe_acls, handle_create_acls, handle_delete_acls
from klamm_controller.rpc.gateway import Gateway
from klamm_server.security.acls.authorizer import StandardAuthorizer


class _Refusal(TypedDict):
    error_code: int
    error_message: str


_NO_AUTHORIZER: Final[_Refusal] = {
    "error_code": ErrorCode.SECURITY_DISABLED,
    "error_message": "this cluster has no authorizer",
}


class AclsRpcs:
    """Answers DescribeAcls, CreateAcls, DeleteAcls and CheckAcl. Without an authorizer, all answer SECURITY_DISABLED,
    because no server would enforce the entries."""

    def __init__(self, gateway: Gateway, rng: random.Random, authorizer: StandardAuthorizer | None) -> None:
        self._gateway = gateway
        self._rng = rng
        self._authorizer = authorizer

    async def describe_acls(self, request: DescribeAclsRequest, context: CallContext) -> DescribeAclsResponse:
        if self._authorizer is None:
            return DescribeAclsResponse(**_NO_AUTHORIZER)
        return await self._gateway.read(lambda image: describe_acls(request, image), DescribeAclsResponse)

    async def create_acls(self, request: CreateAclsRequest, context: CallContext) -> CreateAclsResponse:
        if self._authorizer is None:
            return CreateAclsResponse(**_NO_AUTHORIZER)
        decided = self._gateway.controller.submit(
            "CreateAcls", lambda image: handle_create_acls(request, image, self._rng)
        )
        return await self._gateway.change(decided, CreateAclsResponse, timeout_ms=request.timeout_ms)

    async def delete_acls(self, request: DeleteAclsRequest, context: CallContext) -> DeleteAclsResponse:
        if self._authorizer is None:
            return DeleteAclsResponse(**_NO_AUTHORIZER)
        decided = self._gateway.controller.submit("DeleteAcls", lambda image: handle_delete_acls(request, image))
        return await self._gateway.change(decided, DeleteAclsResponse, timeout_ms=request.timeout_ms)

    async def check_acl(self, request: CheckAclRequest, context: CallContext) -> CheckAclResponse:
        authorizer = self._authorizer
        if authorizer is None:
            return CheckAclResponse(**_NO_AUTHORIZER)
        return await self._gateway.read(lambda image: check_acl(request, image, authorizer), CheckAclResponse)
