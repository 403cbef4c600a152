"""Forwards requests about access control entries to the active controller: DescribeAcls, CreateAcls, DeleteAcls
(KIP-140)."""

from __future__ import annotations

from typing import Any

from klamm.acls import AclBinding
from klamm.errors import BrokerError, ErrorCode
from klamm.wire.acls import binding_of
from klamm.wire.v1 import controller_pb2 as pb
from klamm.wire.v1.controller_rpc import AdminStub
from klamm_broker.kafka.api import ApiKey, Versions, api
from klamm_broker.kafka.codec.fields import Fields
from klamm_broker.kafka.cold.forwarding import TIMEOUT_MS, ActiveController
from klamm_broker.kafka.requests import Request


class AclApis:
    """Answers requests about access control lists. Each method takes a decoded request and returns the answer's
    fields."""

    def __init__(self, controller: ActiveController) -> None:
        self._controller = controller

    @api(ApiKey.DESCRIBE_ACLS, Versions(1, 3, flexible=2), forwarded_to="Admin/DescribeAcls")
    async def describe(self, request: Request, body: Any) -> Fields:
        """Returns the matching entries, grouped by resource pattern as in Kafka."""
        ask = pb.DescribeAclsRequest(filter=_filter(body))
        try:
            answer = await self._controller.ask(AdminStub.describe_acls, ask, timeout_ms=TIMEOUT_MS)
        except BrokerError as error:
            return {"error_code": error.code, "error_message": error.message or None, "resources": []}
        return {
            "error_code": ErrorCode.NONE,
            "error_message": None,
            "resources": _by_pattern([binding_of(acl) for acl in answer.acls]),
        }

    @api(ApiKey.CREATE_ACLS, Versions(1, 3, flexible=2), forwarded_to="Admin/CreateAcls", is_whole=True)
    async def create(self, request: Request, body: Any) -> Fields:
        ask = pb.CreateAclsRequest(
            creations=[
                pb.AclBinding(
                    resource_type=creation.resource_type,
                    resource_name=creation.resource_name,
                    pattern_type=creation.resource_pattern_type,
                    principal=creation.principal,
                    host=creation.host,
                    operation=creation.operation,
                    permission_type=creation.permission_type,
                )
                for creation in body.creations
            ],
            timeout_ms=TIMEOUT_MS,
        )
        try:
            answer = await self._controller.change(AdminStub.create_acls, ask, timeout_ms=TIMEOUT_MS)
        except BrokerError as error:
            return {"results": [_refused(error)] * len(body.creations)}
        return {"results": [_outcome(result.error_code, result.error_message) for result in answer.results]}

    @api(ApiKey.DELETE_ACLS, Versions(1, 3, flexible=2), forwarded_to="Admin/DeleteAcls", is_whole=True)
    async def delete(self, request: Request, body: Any) -> Fields:
        ask = pb.DeleteAclsRequest(
            filters=[_filter(acl_filter) for acl_filter in body.filters],
            timeout_ms=TIMEOUT_MS,
        )
        try:
            answer = await self._controller.change(AdminStub.delete_acls, ask, timeout_ms=TIMEOUT_MS)
        except BrokerError as error:
            return {"filter_results": [{**_refused(error), "matching_acls": []}] * len(body.filters)}
        return {
            "filter_results": [
                {
                    **_outcome(result.error_code, result.error_message),
                    "matching_acls": [_removed(binding_of(acl)) for acl in result.removed],
                }
                for result in answer.results
            ]
        }


def _filter(body: Any) -> pb.AclBindingFilter:
    return pb.AclBindingFilter(
        resource_type=body.resource_type_filter,
        resource_name=body.resource_name_filter,
        pattern_type=body.pattern_type_filter,
        principal=body.principal_filter,
        host=body.host_filter,
        operation=body.operation,
        permission_type=body.permission_type,
    )


def _outcome(code: int, message: str) -> Fields:
    return {"error_code": code, "error_message": message or None}


def _refused(error: BrokerError) -> Fields:
    return _outcome(error.code, error.message)


def _entry(binding: AclBinding) -> Fields:
    return {
        "principal": binding.principal,
        "host": binding.host,
        "operation": binding.operation,
        "permission_type": binding.permission_type,
    }


def _by_pattern(bindings: list[AclBinding]) -> list[Fields]:
    patterns: dict[tuple[int, str, int], list[AclBinding]] = {}
    for binding in bindings:
        patterns.setdefault(binding[:3], []).append(binding)
    return [
        {
            "resource_type": resource_type,
            "resource_name": name,
            "pattern_type": pattern_type,
            "acls": [_entry(binding) for binding in of_pattern],
        }
        for (resource_type, name, pattern_type), of_pattern in patterns.items()
    ]


def _removed(binding: AclBinding) -> Fields:
    return {
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "resource_type": binding.resource_type,
        "resource_name": binding.resource_name,
        "pattern_type": binding.pattern_type,
        **_entry(binding),
    }
