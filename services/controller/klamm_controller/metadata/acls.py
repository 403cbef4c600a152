"""Creates, deletes and describes access control entries, like Kafka's AclApis and AclControlManager."""

from __future__ import annotations

import random
import uuid
from typing import Final

from klamm.acl_rules import binding_problem, principal_problem, resource_problem
from klamm.acls import AclBinding, AclOperation, ResourceType
from klamm.errors import ErrorCode
from klamm.wire.acls import binding_message, binding_of, decision_fields, filter_of
from klamm.wire.v1.controller_pb2 import (
    AclCreationResult,
    CheckAclRequest,
    CheckAclResponse,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from klamm.wire.v1.metadata_pb2 import AccessControlEntryRecord, MetadataRecord, RemoveAccessControlEntryRecord
from klamm_controller.metadata.decision import Decision
from klamm_server.metadata.image import MetadataImage
from klamm_server.security.acls.authorizer import StandardAuthorizer

ACLS_PER_REQUEST_MAX: Final = 10_000
"""The most records that one request may make, as in Kafka."""


def describe_acls(request: DescribeAclsRequest, image: MetadataImage) -> DescribeAclsResponse:
    """Returns the entries that match the request's filter."""
    wanted = filter_of(request.filter)
    if wanted.problem:
        return DescribeAclsResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=wanted.problem)
    found = (binding for binding in image.acls.by_id.values() if wanted.matches(binding))
    return DescribeAclsResponse(acls=map(binding_message, found))


def check_acl(request: CheckAclRequest, image: MetadataImage, authorizer: StandardAuthorizer) -> CheckAclResponse:
    """Returns the decision of `authorizer` on the operation in the request, and the reason."""
    operation, resource_type = AclOperation(request.operation), ResourceType(request.resource_type)
    problem = (
        principal_problem(request.principal)
        or resource_problem(resource_type, request.resource_name)
        or (f"Invalid operation {operation.name}" if operation <= AclOperation.ALL else "")
    )
    if problem:
        return CheckAclResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=problem)
    decision = authorizer.authorize(
        image.acls, request.principal, request.host, operation, resource_type, request.resource_name
    )
    return CheckAclResponse(**decision_fields(decision))


def handle_create_acls(
    request: CreateAclsRequest, image: MetadataImage, rng: random.Random
) -> Decision[CreateAclsResponse]:
    """Creates the entries. Each succeeds or fails by itself. An entry that exists already, or is named twice, is no
    error and changes nothing."""
    results: list[AclCreationResult] = []
    created: dict[AclBinding, None] = {}
    for message in request.creations:
        binding = binding_of(message)
        problem = binding_problem(binding)
        code = ErrorCode.INVALID_REQUEST if problem else ErrorCode.NONE
        results.append(AclCreationResult(error_code=code, error_message=problem))
        if not problem and binding not in image.acls:
            created[binding] = None
    if len(created) > ACLS_PER_REQUEST_MAX:
        return Decision(
            reply=CreateAclsResponse(
                error_code=ErrorCode.POLICY_VIOLATION,
                error_message=f"Cannot create more than {ACLS_PER_REQUEST_MAX} acls in a single create operation.",
            )
        )
    records = tuple(
        MetadataRecord(access_control_entry=AccessControlEntryRecord(id=_new_id(rng), **binding._asdict()))
        for binding in created
    )
    return Decision(records=records, reply=CreateAclsResponse(results=results))


def handle_delete_acls(request: DeleteAclsRequest, image: MetadataImage) -> Decision[DeleteAclsResponse]:
    """Removes all entries that match the filters, or none if they are too many. Each filter's result lists all entries
    that match it."""
    results: list[DeleteAclsFilterResult] = []
    removed: dict[uuid.UUID, None] = {}
    for message in request.filters:
        wanted = filter_of(message)
        if wanted.problem:
            results.append(DeleteAclsFilterResult(error_code=ErrorCode.INVALID_REQUEST, error_message=wanted.problem))
            continue
        meant = {acl_id: binding for acl_id, binding in image.acls.by_id.items() if wanted.matches(binding)}
        removed.update(dict.fromkeys(meant))
        if len(removed) > ACLS_PER_REQUEST_MAX:
            problem = f"Cannot remove more than {ACLS_PER_REQUEST_MAX} acls in a single delete operation."
            return Decision(reply=DeleteAclsResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=problem))
        results.append(DeleteAclsFilterResult(removed=map(binding_message, meant.values())))
    records = tuple(
        MetadataRecord(remove_access_control_entry=RemoveAccessControlEntryRecord(id=acl_id.bytes))
        for acl_id in removed
    )
    return Decision(records=records, reply=DeleteAclsResponse(results=results))


def _new_id(rng: random.Random) -> bytes:
    return uuid.UUID(bytes=rng.randbytes(16), version=4).bytes
