"""Forwards requests about groups and their offsets to coordinators: JoinGroup, SyncGroup, Heartbeat, LeaveGroup,
OffsetCommit, OffsetFetch, OffsetDelete, ListGroups, DescribeGroups, DeleteGroups."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any, TypeVar

from klamm.errors import BrokerError, ErrorCode
from klamm.model import GROUP_METADATA_TOPIC
from klamm.wire.calls import Unary
from klamm.wire.v1 import coordinator_pb2 as pb
from klamm.wire.v1.common_pb2 import PartitionResult, TopicPartitions
from klamm.wire.v1.coordinator_rpc import CoordinatorStub
from klamm_broker.kafka.api import ApiKey, Versions, api
from klamm_broker.kafka.codec.fields import Fields, milliseconds
from klamm_broker.kafka.codec.forwarded import answered, forwarded
from klamm_broker.kafka.cold import authorized_operations
from klamm_broker.kafka.cold.coordinators import check_is_coordinator
from klamm_broker.kafka.cold.forwarding import TIMEOUT_MS, Coordinators
from klamm_broker.kafka.cold.offset_topics import (
    OffsetTopic,
    committed_offsets,
    failed_commits,
    offset_topics,
    unknown_commits,
    with_ids,
)
from klamm_broker.kafka.listener_metadata import ListenerMetadata
from klamm_broker.kafka.requests import Request
from klamm_broker.kafka.topic_ids import TopicIds
from klamm_server.runtime.gather_bounded import gather_bounded
from klamm_server.security.needs import DELETE_GROUP, DESCRIBE_GROUP

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")

JOIN_GRACE_MS = 5_000
"""The time that a join may take beyond its rebalance timeout, as with Kafka's clients."""
KNOWS_MEMBER_ID_REQUIRED = 4
"""The first version of JoinGroup whose clients know MEMBER_ID_REQUIRED (KIP-394)."""
NAMES_LEAVERS = 3
"""The first version of LeaveGroup in which several members leave (KIP-345)."""
NAMES_ITS_PROTOCOL = 5
"""The first version of SyncGroup in which a member must send the type and name of the group's protocol (KIP-559)."""
BY_TOPIC_ID = 10
"""The first version of OffsetCommit and OffsetFetch that names topics by id."""
KNOWS_GROUP_ID_NOT_FOUND = 6
"""The first version of DescribeGroups with GROUP_ID_NOT_FOUND (KIP-1043). Older versions get a dead group instead."""
NO_OFFSET = -1


class GroupApis:
    """Answers requests of groups. Each method takes a decoded request and returns the answer's fields."""

    def __init__(self, coordinators: Coordinators, topic_ids: TopicIds, cluster: ListenerMetadata) -> None:
        self._coordinators = coordinators
        self._topic_ids = topic_ids
        self._cluster = cluster

    @api(ApiKey.JOIN_GROUP, Versions(0, 9, flexible=6), forwarded_to="Coordinator/JoinGroup", is_whole=True)
    async def join_group(self, request: Request, body: Any) -> Fields:
        session_ms = milliseconds(body.session_timeout)
        # Version 0 has one timeout for both purposes.
        rebalance_ms = milliseconds(getattr(body, "rebalance_timeout", body.session_timeout))
        ask = forwarded(
            pb.JoinGroupRequest,
            body,
            rebalance_timeout_ms=max(0, rebalance_ms),
            client_id=request.client_id,
            client_host=f"/{request.client_host}",
            joins_without_id=request.version < KNOWS_MEMBER_ID_REQUIRED,
        )
        try:
            answer = await self._ask(
                body.group_id,
                CoordinatorStub.join_group,
                ask,
                timeout_ms=max(session_ms, rebalance_ms) + JOIN_GRACE_MS,
            )
        except BrokerError as error:
            answer = pb.JoinGroupResponse(error_code=error.code, member_id=body.member_id)
        return {**answered(answer), "generation_id": -1 if answer.error_code else answer.generation_id}

    @api(ApiKey.SYNC_GROUP, Versions(0, 5, flexible=4), forwarded_to="Coordinator/SyncGroup", is_whole=True)
    async def sync_group(self, request: Request, body: Any) -> Fields:
        if request.version >= NAMES_ITS_PROTOCOL and None in (body.protocol_type, body.protocol_name):
            return answered(pb.SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        ask = forwarded(pb.SyncGroupRequest, body)
        try:
            answer = await self._ask(body.group_id, CoordinatorStub.sync_group, ask, timeout_ms=10 * TIMEOUT_MS)
        except BrokerError as error:
            answer = pb.SyncGroupResponse(error_code=error.code)
        return answered(answer)

    @api(ApiKey.HEARTBEAT, Versions(0, 4, flexible=4), forwarded_to="Coordinator/Heartbeat")
    async def heartbeat(self, request: Request, body: Any) -> Fields:
        ask = forwarded(pb.HeartbeatRequest, body)
        try:
            answer = await self._ask(body.group_id, CoordinatorStub.heartbeat, ask)
        except BrokerError as error:
            answer = pb.MemberResponse(error_code=error.code)
        return answered(answer)

    @api(ApiKey.LEAVE_GROUP, Versions(0, 5, flexible=4), forwarded_to="Coordinator/LeaveGroup")
    async def leave_group(self, request: Request, body: Any) -> Fields:
        if request.version >= NAMES_LEAVERS:
            ask = forwarded(pb.LeaveGroupRequest, body)
        else:
            members = [pb.LeavingMember(member_id=body.member_id)]
            ask = pb.LeaveGroupRequest(group_id=body.group_id, members=members)
        try:
            answer = await self._ask(body.group_id, CoordinatorStub.leave_group, ask)
        except BrokerError as error:
            answer = pb.LeaveGroupResponse(error_code=error.code)
        code = answer.error_code
        if request.version < NAMES_LEAVERS and not code and answer.members:
            code = answer.members[0].error_code
        return {**answered(answer), "error_code": code}

    # Offsets

    @api(ApiKey.OFFSET_COMMIT, Versions(2, 10, flexible=8), forwarded_to="Coordinator/OffsetCommit")
    async def offset_commit(self, request: Request, body: Any) -> Fields:
        # KIP-848 renamed this field. Its meaning for a classic group is the same.
        generation_id = getattr(body, "generation_id_or_member_epoch", None)
        topics = offset_topics(body.topics, self._topic_ids)
        ask = forwarded(
            pb.OffsetCommitRequest,
            body,
            client_host=f"/{request.client_host}",
            generation_id=body.generation_id if generation_id is None else generation_id,
            offsets=committed_offsets(topics),
        )
        try:
            results: Sequence[PartitionResult] = (
                (await self._ask(body.group_id, CoordinatorStub.offset_commit, ask)).partitions if ask.offsets else ()
            )
        except BrokerError as error:
            results = failed_commits(ask.offsets, error.code)
        return {"topics": with_ids(by_topic([*results, *unknown_commits(topics)], _outcome), topics)}

    @api(ApiKey.OFFSET_FETCH, Versions(1, 10, flexible=6), forwarded_to="Coordinator/OffsetFetch")
    async def offset_fetch(self, request: Request, body: Any) -> Fields:
        require_stable = getattr(body, "require_stable", False)
        asked = body.groups if request.version >= 8 else [body]
        found = await gather_bounded(partial(self._fetch_offsets, request, require_stable), asked)
        if request.version >= 8:
            return {"groups": found}
        (only,) = found
        if only["error_code"] and request.version < 2:
            # This version has no code for the whole answer, so every partition gets the code.
            only = {**only, "topics": _failed_topics(offset_topics(body.topics, self._topic_ids), only["error_code"])}
        return only

    async def _fetch_offsets(self, request: Request, require_stable: bool, body: Any) -> Fields:
        group_id, topics = body.group_id, offset_topics(body.topics or (), self._topic_ids)
        known = [topic for topic in topics if not topic.is_unknown]
        ask = pb.OffsetFetchRequest(
            group_id=group_id,
            topics=[TopicPartitions(topic=topic.name, partitions=topic.asked.partition_indexes) for topic in known],
            all_topics=body.topics is None,
            require_stable=require_stable,
            member_id=getattr(body, "member_id", None) or "",
            member_epoch=getattr(body, "member_epoch", -1),
        )
        try:
            DESCRIBE_GROUP.refuse_early(group_id)
            answer = await self._ask(group_id, CoordinatorStub.offset_fetch, ask)
        except BrokerError as error:
            answer = pb.OffsetFetchResponse(error_code=error.code)
        unknown = _failed_topics((topic for topic in topics if topic.is_unknown), ErrorCode.UNKNOWN_TOPIC_ID)
        if answer.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT and body.topics is not None:
            # Clients retry if a partition has this error (KIP-447), but not if the group has it.
            unstable = _failed_topics(known, answer.error_code)
            return {"group_id": group_id, "error_code": 0, "topics": [*unstable, *unknown]}
        found = by_topic(answer.offsets, _fetched_offset)
        if request.version >= BY_TOPIC_ID and body.topics is None:
            found = self._those_with_ids(found)
        return {
            "group_id": group_id,
            "error_code": answer.error_code,
            "topics": [] if answer.error_code else [*with_ids(found, topics), *unknown],
        }

    @api(ApiKey.OFFSET_DELETE, Versions(0, 0, flexible=1), forwarded_to="Coordinator/OffsetDelete")
    async def offset_delete(self, request: Request, body: Any) -> Fields:
        ask = pb.OffsetDeleteRequest(
            group_id=body.group_id,
            topics=[
                TopicPartitions(
                    topic=topic.name, partitions=[partition.partition_index for partition in topic.partitions]
                )
                for topic in body.topics
            ],
        )
        try:
            check_is_coordinator(self._cluster, body.group_id)
            answer = await self._ask(body.group_id, CoordinatorStub.offset_delete, ask)
        except BrokerError as error:
            answer = pb.OffsetDeleteResponse(error_code=error.code)
        return {"error_code": answer.error_code, "topics": by_topic(answer.partitions, _outcome)}

    def _those_with_ids(self, topics: Iterable[Fields]) -> list[Fields]:
        """Returns the topics that have an id. Deleted topics have none."""
        named = ({**topic, "topic_id": uuid.UUID(bytes=self._topic_ids.id_of(topic["name"]))} for topic in topics)
        return [topic for topic in named if topic["topic_id"].int]

    # Administration

    @api(ApiKey.LIST_GROUPS, Versions(0, 5, flexible=3), forwarded_to="Coordinator/ListGroups", is_whole=True)
    async def list_groups(self, request: Request, body: Any) -> Fields:
        ask = pb.ListGroupsRequest(states=getattr(body, "states_filter", ()), types=getattr(body, "types_filter", ()))
        try:
            answers = await self._coordinators.ask_all(CoordinatorStub.list_groups, ask, timeout_ms=TIMEOUT_MS)
        except BrokerError as error:
            return {"error_code": error.code, "groups": []}
        found = [group for answer in answers for group in answer.groups]
        own = self._cluster.coordinated_here(group.group_id for group in found)
        groups = [answered(group) for group in found if group.group_id in own]
        code = next((answer.error_code for answer in answers if answer.error_code), 0)
        return {"error_code": code, "groups": groups}

    @api(ApiKey.DESCRIBE_GROUPS, Versions(0, 6, flexible=5), forwarded_to="Coordinator/DescribeGroups")
    async def describe_groups(self, request: Request, body: Any) -> Fields:
        is_asked_for = getattr(body, "include_authorized_operations", False)
        return {"groups": await gather_bounded(partial(self._describe, request.version, is_asked_for), body.groups)}

    async def _describe(self, version: int, with_operations: bool, group_id: str) -> Fields:
        operations = authorized_operations.of_group(group_id, with_operations)
        try:
            check_is_coordinator(self._cluster, group_id)
            DESCRIBE_GROUP.refuse_early(group_id)
            answer = await self._ask(
                group_id, CoordinatorStub.describe_groups, pb.DescribeGroupsRequest(group_ids=[group_id])
            )
            (group,) = answer.groups
        except BrokerError as error:
            group = pb.DescribedGroup(error_code=error.code, error_message=error.message, group_id=group_id)
        fields = {**answered(group), "group_id": group_id}
        if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            fields["group_state"] = "Dead"
            if version < KNOWS_GROUP_ID_NOT_FOUND:
                fields["error_code"] = ErrorCode.NONE
        is_refused = fields["error_code"] != ErrorCode.NONE
        return {**fields, "authorized_operations": authorized_operations.NOT_ASKED_FOR if is_refused else operations}

    @api(ApiKey.DELETE_GROUPS, Versions(0, 3, flexible=2), forwarded_to="Coordinator/DeleteGroups")
    async def delete_groups(self, request: Request, body: Any) -> Fields:
        return {"results": await gather_bounded(self._delete, body.groups_names)}

    async def _delete(self, group_id: str) -> Fields:
        try:
            check_is_coordinator(self._cluster, group_id)
            DELETE_GROUP.refuse_early(group_id)
            answer = await self._ask(
                group_id, CoordinatorStub.delete_groups, pb.DeleteGroupsRequest(group_ids=[group_id])
            )
            (result,) = answer.results
        except BrokerError as error:
            result = pb.DeletedGroup(error_code=error.code, error_message=error.message)
        return {**answered(result), "group_id": group_id}

    async def _ask(
        self,
        group_id: str,
        rpc: Unary[CoordinatorStub, RequestT, ResponseT],
        request: RequestT,
        timeout_ms: int = TIMEOUT_MS,
    ) -> ResponseT:
        return await self._coordinators.ask(GROUP_METADATA_TOPIC, group_id, rpc, request, timeout_ms=timeout_ms)


def by_topic(partitions: Iterable[Any], fields: Callable[[Any], Fields]) -> list[Mapping[str, Any]]:
    """Groups flat partitions by topic, as Kafka's answers nest them."""
    return [
        {"name": topic, "topic": topic, "partitions": [fields(partition) for partition in group]}
        for topic, group in groupby(partitions, key=lambda partition: partition.topic)
    ]


def _outcome(result: PartitionResult) -> Fields:
    return {"partition_index": result.partition, "error_code": result.error_code}


def _fetched_offset(found: pb.GroupOffset) -> Fields:
    return {
        "partition_index": found.partition,
        "committed_offset": found.offset,
        "committed_leader_epoch": found.leader_epoch,
        "metadata": found.metadata,
        "error_code": found.error_code,
    }


def _failed_topics(topics: Iterable[OffsetTopic], code: int) -> list[Fields]:
    return [
        {
            "name": topic.name,
            "topic_id": topic.topic_id,
            "partitions": [
                {"partition_index": number, "committed_offset": NO_OFFSET, "metadata": "", "error_code": code}
                for number in topic.asked.partition_indexes
            ],
        }
        for topic in topics
    ]
