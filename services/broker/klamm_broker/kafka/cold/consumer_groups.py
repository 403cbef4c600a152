"""Forwards requests about groups of the new protocol to coordinators (KIP-848): ConsumerGroupHeartbeat,
ConsumerGroupDescribe."""

from __future__ import annotations

from functools import partial
from typing import Any

from klamm.errors import BrokerError, ErrorCode
from klamm.model import GROUP_METADATA_TOPIC
from klamm.wire.v1 import coordinator_pb2 as pb
from klamm.wire.v1.coordinator_rpc import CoordinatorStub
from klamm_broker.kafka.api import ApiKey, Versions, api
from klamm_broker.kafka.codec.fields import Fields, milliseconds
from klamm_broker.kafka.codec.forwarded import answered, forwarded
from klamm_broker.kafka.cold import authorized_operations
from klamm_broker.kafka.cold.coordinators import check_is_coordinator
from klamm_broker.kafka.cold.forwarding import Coordinators
from klamm_broker.kafka.listener_metadata import ListenerMetadata
from klamm_broker.kafka.requests import Request
from klamm_server.runtime.gather_bounded import gather_bounded
from klamm_server.security.needs import DESCRIBE_GROUP

TIMEOUT_MS = 30_000
CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1
"""The numbers that Kafka gives members with the classic and with the new protocol."""
CLIENT_NAMES_MEMBER = 1
"""The first version of ConsumerGroupHeartbeat in which the client chooses its member id (KIP-1082)."""
_NO_ID = bytes(16)


class ConsumerGroupApis:
    """Answers requests of KIP-848's groups. Each method takes a decoded request and returns the answer's fields."""

    def __init__(self, coordinators: Coordinators, cluster: ListenerMetadata) -> None:
        self._coordinators = coordinators
        self._cluster = cluster

    @api(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        Versions(0, 1, flexible=0),
        forwarded_to="Coordinator/ConsumerGroupHeartbeat",
        is_whole=True,
    )
    async def heartbeat(self, request: Request, body: Any) -> Fields:
        try:
            _check(request, body)
            answer = await self._coordinators.ask(
                GROUP_METADATA_TOPIC,
                body.group_id,
                CoordinatorStub.consumer_group_heartbeat,
                _heartbeat(request, body),
                timeout_ms=TIMEOUT_MS,
            )
        except BrokerError as error:
            answer = pb.ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
        return {**answered(answer), "member_id": None if answer.error_code else answer.member_id}

    @api(ApiKey.CONSUMER_GROUP_DESCRIBE, Versions(0, 1, flexible=0), forwarded_to="Coordinator/ConsumerGroupDescribe")
    async def describe(self, request: Request, body: Any) -> Fields:
        describe = partial(self._describe, body.include_authorized_operations)
        return {"groups": await gather_bounded(describe, body.group_ids)}

    async def _describe(self, with_operations: bool, group_id: str) -> Fields:
        operations = authorized_operations.of_group(group_id, with_operations)
        ask = pb.ConsumerGroupDescribeRequest(group_ids=[group_id])
        try:
            check_is_coordinator(self._cluster, group_id)
            DESCRIBE_GROUP.refuse_early(group_id)
            answer = await self._coordinators.ask(
                GROUP_METADATA_TOPIC, group_id, CoordinatorStub.consumer_group_describe, ask, timeout_ms=TIMEOUT_MS
            )
            (group,) = answer.groups
        except BrokerError as error:
            group = pb.DescribedConsumerGroup(error_code=error.code, error_message=error.message)
        fields = answered(group)
        return {
            **fields,
            "group_id": group_id,
            "members": list(map(_member, fields["members"], group.members)),
            "authorized_operations": authorized_operations.NOT_ASKED_FOR if group.error_code else operations,
        }


def _check(request: Request, body: Any) -> None:
    """Checks texts that may be null but not empty, because Klamm's own request does not distinguish the two. Raises
    InvalidRequestError or UnsupportedAssignorError."""
    texts = {"group_id": body.group_id.strip(), "instance_id": body.instance_id, "rack_id": body.rack_id}
    if request.version >= CLIENT_NAMES_MEMBER:
        texts["member_id"] = body.member_id
    for name, text in texts.items():
        if text == "":
            raise ErrorCode.INVALID_REQUEST.exception(f"{name} is empty")
    if body.server_assignor == "":
        raise ErrorCode.UNSUPPORTED_ASSIGNOR.exception("server_assignor is empty")


def _heartbeat(request: Request, body: Any) -> pb.ConsumerGroupHeartbeatRequest:
    """Returns Klamm's request for Kafka's. Fields that are null in Kafka's are not set."""
    ask = forwarded(
        pb.ConsumerGroupHeartbeatRequest,
        body,
        rebalance_timeout_ms=None,
        subscribed_topic_names=None,
        client_id=request.client_id,
        client_host=f"/{request.client_host}",
    )
    if (rebalance_timeout_ms := milliseconds(body.rebalance_timeout)) >= 0:
        ask.rebalance_timeout_ms = rebalance_timeout_ms
    if body.subscribed_topic_names is not None:
        ask.subscribed_topic_names.CopyFrom(pb.TopicNames(names=body.subscribed_topic_names))
    if body.topic_partitions is not None:
        ask.owned.CopyFrom(pb.ConsumerAssignment(topics=map(_owned, body.topic_partitions)))
    return ask


def _owned(topic: Any) -> pb.ConsumerPartitions:
    topic_id = _NO_ID if topic.topic_id is None else topic.topic_id.bytes
    return pb.ConsumerPartitions(topic_id=topic_id, partitions=topic.partitions)


def _member(fields: Fields, member: pb.DescribedConsumerMember) -> Fields:
    return {
        **fields,
        # Kafka has an empty text here too.
        "subscribed_topic_regex": member.subscribed_topic_regex,
        "member_type": CLASSIC_MEMBER if member.uses_classic_protocol else CONSUMER_MEMBER,
    }
