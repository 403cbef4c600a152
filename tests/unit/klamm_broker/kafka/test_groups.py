"""What groups' requests mean in their first and newest versions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from cold_requests import ScriptedCoordinators, answer_of

from klamm.errors import ErrorCode
from klamm.wire.v1 import coordinator_pb2 as pb
from klamm_broker.kafka.groups import Groups
from klamm_broker.kafka.requests import ApiKey


@pytest.mark.parametrize(("version", "rebalance_ms"), [(0, 6_000), (1, 9_000)])
def test_who_names_one_timeout_means_it_for_both(version: int, rebalance_ms: int) -> None:
    coordinators = ScriptedCoordinators({"join_group": lambda _: pb.JoinGroupResponse(member_id="m", leader="m")})
    fields = {
        "group_id": "g",
        "session_timeout": 6_000,
        "rebalance_timeout": 9_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    groups = Groups(coordinators)  # type: ignore[arg-type]
    answer = asyncio.run(answer_of(groups.join_group, ApiKey.JOIN_GROUP, version, fields))
    assert (answer.member_id, answer.error_code) == ("m", 0)
    ((_, asked),) = coordinators.asked
    assert (asked.session_timeout_ms, asked.rebalance_timeout_ms) == (6_000, rebalance_ms)
    assert asked.joins_without_id


@pytest.mark.parametrize(("version", "code"), [(5, ErrorCode.NONE), (6, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_a_group_that_does_not_exist_is_dead_and_from_version_6_on_not_found(version: int, code: ErrorCode) -> None:
    def describe(request: Any) -> pb.DescribeGroupsResponse:
        (group_id,) = request.group_ids
        missing = ErrorCode.GROUP_ID_NOT_FOUND
        found = pb.DescribedGroup(group_id=group_id, error_code=missing, error_message=missing.text)
        return pb.DescribeGroupsResponse(groups=[found])

    groups = Groups(ScriptedCoordinators({"describe_groups": describe}))  # type: ignore[arg-type]
    fields = {"groups": ["nobody"], "include_authorized_operations": False}
    (group,) = asyncio.run(answer_of(groups.describe_groups, ApiKey.DESCRIBE_GROUPS, version, fields)).groups
    assert (group.error_code, group.group_state, group.members) == (code, "Dead", ())
    if version >= 6:
        assert group.error_message
