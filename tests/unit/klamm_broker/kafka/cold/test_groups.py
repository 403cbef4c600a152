"""Tests the meaning of group requests in their first and newest versions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from klamm.acls import AclOperation, ResourceType
from klamm.errors import ErrorCode
from klamm.wire.v1 import coordinator_pb2 as pb
from klamm.wire.v1.common_pb2 import PartitionResult
from klamm_broker.kafka.api import ApiKey
from klamm_broker.kafka.cold.groups import GroupApis
from tests.support.callers import allow, called_with
from tests.support.cold_requests import ALONE, FLIGHTS, TOPIC_IDS, UNKNOWN, ScriptedCoordinators, answer_of


@pytest.mark.parametrize(("version", "rebalance_ms"), [(0, 6_000), (1, 9_000)])
def test_join_group_version_0_uses_its_session_timeout_as_rebalance_timeout(version: int, rebalance_ms: int) -> None:
    coordinators = ScriptedCoordinators({"join_group": lambda _: pb.JoinGroupResponse(member_id="m", leader="m")})
    fields = {
        "group_id": "g",
        "session_timeout": 6_000,
        "rebalance_timeout": 9_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    groups = GroupApis(coordinators, TOPIC_IDS, ALONE)
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

    groups = GroupApis(ScriptedCoordinators({"describe_groups": describe}), TOPIC_IDS, ALONE)
    fields = {"groups": ["nobody"], "include_authorized_operations": False}
    (group,) = asyncio.run(answer_of(groups.describe_groups, ApiKey.DESCRIBE_GROUPS, version, fields)).groups
    assert (group.error_code, group.group_state, group.members) == (code, "Dead", ())
    if version >= 6:
        assert group.error_message


def committed(request: Any) -> pb.OffsetCommitResponse:
    return pb.OffsetCommitResponse(
        partitions=[PartitionResult(topic=offset.topic, partition=offset.partition) for offset in request.offsets]
    )


@pytest.mark.parametrize("version", [9, 10])
def test_offsets_are_committed_by_topic_id_from_version_10_on(version: int) -> None:
    coordinators = ScriptedCoordinators({"offset_commit": committed})
    partitions = [{"partition_index": 1, "committed_offset": 5, "committed_metadata": "m"}]
    topics = [{"name": "flights", "topic_id": FLIGHTS}, {"name": "?" + UNKNOWN.hex, "topic_id": UNKNOWN}]
    fields = {
        "group_id": "g",
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": [{**topic, "partitions": partitions} for topic in topics],
    }
    groups = GroupApis(coordinators, TOPIC_IDS, ALONE)
    answer = asyncio.run(answer_of(groups.offset_commit, ApiKey.OFFSET_COMMIT, version, fields))
    ((_, asked),) = coordinators.asked
    named = [(offset.topic, offset.partition, offset.offset) for offset in asked.offsets]
    results = [
        (topic, [(partition.partition_index, partition.error_code) for partition in topic.partitions])
        for topic in answer.topics
    ]
    if version < 10:
        # The handler accepts any name, because the coordinator checks whether the topic exists.
        assert named == [("flights", 1, 5), ("?" + UNKNOWN.hex, 1, 5)]
        assert [(topic.name, codes) for topic, codes in results] == [
            ("flights", [(1, 0)]),
            ("?" + UNKNOWN.hex, [(1, 0)]),
        ]
    else:
        assert named == [("flights", 1, 5)]
        assert [(topic.topic_id, codes) for topic, codes in results] == [
            (FLIGHTS, [(1, ErrorCode.NONE)]),
            (UNKNOWN, [(1, ErrorCode.UNKNOWN_TOPIC_ID)]),
        ]


def test_a_commit_to_unknown_topic_ids_only_is_not_sent_to_the_coordinator() -> None:
    coordinators = ScriptedCoordinators({})
    partitions = [{"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}]
    fields = {
        "group_id": "g",
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": [{"topic_id": one, "partitions": partitions} for one in (UNKNOWN, None)],
    }
    groups = GroupApis(coordinators, TOPIC_IDS, ALONE)
    answer = asyncio.run(answer_of(groups.offset_commit, ApiKey.OFFSET_COMMIT, 10, fields))
    assert [(topic.topic_id, int(topic.partitions[0].error_code)) for topic in answer.topics] == [
        (UNKNOWN, ErrorCode.UNKNOWN_TOPIC_ID),
        (None, ErrorCode.UNKNOWN_TOPIC_ID),
    ]


def fetched(request: Any) -> pb.OffsetFetchResponse:
    """Answers for a group that has committed offset 5 in every requested partition.

    An answer for all topics includes a deleted topic.
    """
    names = ["flights", "gone"] if request.all_topics else [topic.topic for topic in request.topics]
    return pb.OffsetFetchResponse(
        offsets=[pb.GroupOffset(topic=name, partition=0, offset=5, leader_epoch=2, metadata="m") for name in names]
    )


@pytest.mark.parametrize("everything", [False, True])
@pytest.mark.parametrize("version", [9, 10])
def test_offsets_are_fetched_by_topic_id_from_version_10_on(version: int, everything: bool) -> None:
    topics = [{"name": "flights", "topic_id": FLIGHTS}, {"name": "gone", "topic_id": UNKNOWN}]
    wanted = {"group_id": "g", "member_id": None, "member_epoch": -1}
    asked_for = None if everything else [{**topic, "partition_indexes": [0]} for topic in topics]
    fields = {"groups": [{**wanted, "topics": asked_for}], "require_stable": True}
    groups = GroupApis(ScriptedCoordinators({"offset_fetch": fetched}), TOPIC_IDS, ALONE)
    (group,) = asyncio.run(answer_of(groups.offset_fetch, ApiKey.OFFSET_FETCH, version, fields)).groups
    found = [
        (
            topic.name if version < 10 else topic.topic_id,
            [
                (
                    partition.committed_offset,
                    partition.committed_leader_epoch,
                    partition.metadata,
                    int(partition.error_code),
                )
            ],
        )
        for topic in group.topics
        for partition in topic.partitions
    ]
    there, missing = [(5, 2, "m", 0)], [(-1, -1, "", ErrorCode.UNKNOWN_TOPIC_ID)]
    if version < 10:
        assert found == [("flights", there), ("gone", there)]
    else:
        assert found == [(FLIGHTS, there)] if everything else [(FLIGHTS, there), (UNKNOWN, missing)]


def test_an_unstable_offset_is_an_error_of_each_partition_if_topics_are_named_by_id() -> None:
    def unstable(request: Any) -> pb.OffsetFetchResponse:
        return pb.OffsetFetchResponse(error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT)

    topics = [{"topic_id": FLIGHTS, "partition_indexes": [0, 1]}]
    wanted = {"group_id": "g", "member_id": None, "member_epoch": -1, "topics": topics}
    groups = GroupApis(ScriptedCoordinators({"offset_fetch": unstable}), TOPIC_IDS, ALONE)
    fields = {"groups": [wanted], "require_stable": True}
    (group,) = asyncio.run(answer_of(groups.offset_fetch, ApiKey.OFFSET_FETCH, 10, fields)).groups
    assert (group.error_code, group.topics[0].topic_id) == (0, FLIGHTS)
    assert {int(partition.error_code) for partition in group.topics[0].partitions} == {ErrorCode.UNSTABLE_OFFSET_COMMIT}


@pytest.mark.parametrize(
    ("api_key", "version", "fields"),
    [
        (ApiKey.DESCRIBE_GROUPS, 5, {"groups": ["g", "mine"], "include_authorized_operations": False}),
        (ApiKey.DELETE_GROUPS, 2, {"groups_names": ["g", "mine"]}),
    ],
)
def test_no_coordinator_is_asked_about_a_group_that_the_caller_may_not_use(
    api_key: ApiKey, version: int, fields: dict[str, Any]
) -> None:
    def described(request: Any) -> pb.DescribeGroupsResponse:
        return pb.DescribeGroupsResponse(
            groups=[pb.DescribedGroup(group_id=group_id) for group_id in request.group_ids]
        )

    def deleted(request: Any) -> pb.DeleteGroupsResponse:
        return pb.DeleteGroupsResponse(results=[pb.DeletedGroup(group_id=group_id) for group_id in request.group_ids])

    coordinators = ScriptedCoordinators({"describe_groups": described, "delete_groups": deleted})
    groups = GroupApis(coordinators, TOPIC_IDS, ALONE)
    handler = groups.describe_groups if api_key is ApiKey.DESCRIBE_GROUPS else groups.delete_groups
    with called_with(allow(AclOperation.DELETE, ResourceType.GROUP, "mine")):
        answer = asyncio.run(answer_of(handler, api_key, version, fields))
    results = answer.groups if api_key is ApiKey.DESCRIBE_GROUPS else answer.results
    assert [result.error_code for result in results] == [ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.NONE]
    assert [list(request.group_ids) for _, request in coordinators.asked] == [["mine"]]
