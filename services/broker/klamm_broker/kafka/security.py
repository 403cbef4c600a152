"""What asks after users and their rights, where nobody is authenticated: DescribeAcls, CreateAcls, DeleteAcls,
DescribeUserScramCredentials, as a Kafka without an authorizer answers."""

from __future__ import annotations

from collections import Counter
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
    times = Counter(one.name for one in wanted.users or ())
    results = [_no_credentials(name, asked) for name, asked in times.items()]
    return {"error_code": ErrorCode.NONE, "error_message": None, "results": results}


def _no_credentials(user: str, times: int) -> Fields:
    code, problem = ErrorCode.RESOURCE_NOT_FOUND, "has no credentials"
    if times > 1:
        code, problem = ErrorCode.DUPLICATE_RESOURCE, f"is named {times} times"
    return {"user": user, "error_code": code, "error_message": f"user {user!r} {problem}", "credential_infos": []}
