"""What asks after users and their rights, where nobody is authenticated: DescribeAcls, CreateAcls, DeleteAcls,
DescribeUserScramCredentials, as a Kafka without an authorizer answers."""

from __future__ import annotations

from typing import Any, Final

from klamm.errors import ErrorCode
from klamm_broker.kafka.messages import Fields
from klamm_broker.kafka.requests import Request

_NO_AUTHORIZER: Final[Fields] = {
    "error_code": ErrorCode.SECURITY_DISABLED,
    "error_message": "this cluster has no authorizer",
}


async def describe_acls(request: Request, wanted: Any) -> Fields:
    return {**_NO_AUTHORIZER, "resources": []}


async def create_acls(request: Request, wanted: Any) -> Fields:
    return {"results": [_NO_AUTHORIZER] * len(wanted.creations)}


async def delete_acls(request: Request, wanted: Any) -> Fields:
    return {"filter_results": [{**_NO_AUTHORIZER, "matching_acls": []}] * len(wanted.filters)}


async def describe_user_scram_credentials(request: Request, wanted: Any) -> Fields:
    """There are none: of all users an empty list, of a user by name RESOURCE_NOT_FOUND."""
    results = [
        {
            "user": one.name,
            "error_code": ErrorCode.RESOURCE_NOT_FOUND,
            "error_message": f"user {one.name!r} has no credentials",
            "credential_infos": [],
        }
        for one in wanted.users or ()
    ]
    return {"error_code": ErrorCode.NONE, "error_message": None, "results": results}
