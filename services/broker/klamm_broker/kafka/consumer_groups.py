"""Forwards requests about groups of the new protocol to coordinators (KIP-848): ConsumerGroupHeartbeat,
ConsumerGroupDescribe."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from functools import partial
from typing import Any

from klamm.acls import AclOperation, ResourceType
from klamm.errors import BrokerError, ErrorCode
from klamm.model import GROUP_METADATA_TOPIC
from klamm.wire.v1 import coordinator_pb2 as pb
from klamm.wire.v1.coordinator_rpc import CoordinatorStub
from klamm_broker.kafka import authorized_operations
from klamm_broker.kafka.coordinators import check_is_coordinator
from klamm_broker.kafka.forwarding import Coordinators
from klamm_broker.kafka.messages import Fields, milliseconds
from klamm_broker.kafka.requests import Request
from klamm_broker.kafka.seen_cluster import SeenCluster
from klamm_server.runtime.few_at_once import few_at_once
from klamm_server.security.session import refuse_early

TIMEOUT_MS = 30_000
CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1
"""The numbers that Kafka gives members with the classic and with the new protocol."""
CLIENT_NAMES_MEMBER = 1
"""The first version of ConsumerGroupHeartbeat in which the client chooses its member id (KIP-1082)."""
_NO_ID = bytes(16)


class ConsumerGroupApis:
    """Answers requests of KIP-848's groups. Each method takes a decoded request and returns the answer's fields."""

    def __init__(self, coordinators: Coordinators, cluster: SeenCluster) -> None:
        self._coordinators = coordinators
        self._cluster = cluster

    async def heartbeat(self, request: Request, wanted: Any) -> Fields:
        try:
            _check(request, wanted)
            answer = await self._coordinators.ask(
                GROUP_METADATA_TOPIC,
                wanted.group_id,
                CoordinatorStub.consumer_group_heartbeat,
                _heartbeat(request, wanted),
                timeout_ms=TIMEOUT_MS,
            )
        except BrokerError as error:
            answer = pb.ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
        return {
            "error_code": answer.error_code,
            "error_message": answer.error_message or None,
            "member_id": None if answer.error_code else answer.member_id,
            "member_epoch": answer.member_epoch,
            "heartbeat_interval": answer.heartbeat_interval_ms,
            "assignment": _assignment(answer.assignment) if answer.HasField("assignment") else None,
        }

    async def describe(self, request: Request, wanted: Any) -> Fields:
        describe = partial(self._describe, wanted.include_authorized_operations)
        return {"groups": await few_at_once(describe, wanted.group_ids)}

    async def _describe(self, with_operations: bool, group_id: str) -> Fields:
        operations = authorized_operations.of_group(group_id, with_operations)
        ask = pb.ConsumerGroupDescribeRequest(group_ids=[group_id])
        try:
            check_is_coordinator(self._cluster, group_id)
            refuse_early(AclOperation.DESCRIBE, ResourceType.GROUP, group_id)
            answer = await self._coordinators.ask(
                GROUP_METADATA_TOPIC, group_id, CoordinatorStub.consumer_group_describe, ask, timeout_ms=TIMEOUT_MS
            )
            (group,) = answer.groups
        except BrokerError as error:
            group = pb.DescribedConsumerGroup(error_code=error.code, error_message=error.message)
        return {
            "error_code": group.error_code,
            "error_message": group.error_message or None,
            "group_id": group_id,
            "group_state": group.state,
            "group_epoch": group.group_epoch,
            "assignment_epoch": group.assignment_epoch,
            "assignor_name": group.assignor,
            "members": [_member(one) for one in group.members],
            "authorized_operations": authorized_operations.NOT_ASKED_FOR if group.error_code else operations,
        }


def _check(request: Request, wanted: Any) -> None:
    """Checks texts that may be null but not empty, because Klamm's own request does not distinguish the two. Raises
    InvalidRequestError or UnsupportedAssignorError."""
    texts = {"group_id": wanted.group_id.strip(), "instance_id": wanted.instance_id, "rack_id": wanted.rack_id}
    if request.version >= CLIENT_NAMES_MEMBER:
        texts["member_id"] = wanted.member_id
    for name, text in texts.items():
        if text == "":
            raise ErrorCode.INVALID_REQUEST.exception(f"{name} is empty")
    if wanted.server_assignor == "":
        raise ErrorCode.UNSUPPORTED_ASSIGNOR.exception("server_assignor is empty")


def _heartbeat(request: Request, wanted: Any) -> pb.ConsumerGroupHeartbeatRequest:
    """Returns Klamm's request for Kafka's. Fields that are null in Kafka's are not set."""
    ask = pb.ConsumerGroupHeartbeatRequest(
        group_id=wanted.group_id,
        member_id=wanted.member_id,
        member_epoch=wanted.member_epoch,
        group_instance_id=wanted.instance_id or "",
        rack_id=wanted.rack_id,
        subscribed_topic_regex=getattr(wanted, "subscribed_topic_regex", None),
        server_assignor=wanted.server_assignor,
        client_id=request.client_id,
        client_host=f"/{request.client_host}",
    )
    if (rebalance_timeout_ms := milliseconds(wanted.rebalance_timeout)) >= 0:
        ask.rebalance_timeout_ms = rebalance_timeout_ms
    if wanted.subscribed_topic_names is not None:
        ask.subscribed_topic_names.CopyFrom(pb.TopicNames(names=wanted.subscribed_topic_names))
    if wanted.topic_partitions is not None:
        ask.owned.CopyFrom(pb.ConsumerAssignment(topics=map(_owned, wanted.topic_partitions)))
    return ask


def _owned(topic: Any) -> pb.ConsumerPartitions:
    topic_id = _NO_ID if topic.topic_id is None else topic.topic_id.bytes
    return pb.ConsumerPartitions(topic_id=topic_id, partitions=topic.partitions)


def _assignment(assignment: pb.ConsumerAssignment) -> Fields:
    return {"topic_partitions": list(_topics(assignment.topics))}


def _topics(topics: Iterable[pb.ConsumerPartitions]) -> Iterable[Fields]:
    return (
        {"topic_id": uuid.UUID(bytes=one.topic_id), "topic_name": one.topic, "partitions": one.partitions}
        for one in topics
    )


def _member(member: pb.DescribedConsumerMember) -> Fields:
    return {
        "member_id": member.member_id,
        "instance_id": member.group_instance_id or None,
        "rack_id": member.rack_id or None,
        "member_epoch": member.member_epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": member.subscribed_topic_names,
        "subscribed_topic_regex": member.subscribed_topic_regex,
        "assignment": _assignment(member.assignment),
        "target_assignment": _assignment(member.target_assignment),
        "member_type": CLASSIC_MEMBER if member.uses_classic_protocol else CONSUMER_MEMBER,
    }
