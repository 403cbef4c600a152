"""The calls of groups of the new protocol (KIP-848): ConsumerGroupHeartbeat, ConsumerGroupDescribe."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from klamm.errors import EXCEPTIONS, BrokerError, ErrorCode
from klamm.wire.calls import CallContext
from klamm.wire.v1.coordinator_pb2 import (
    ConsumerAssignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerPartitions,
    DescribedConsumerGroup,
    DescribedConsumerMember,
)
from klamm_coordinator.group_shard.rules import GroupRules
from klamm_coordinator.groups.settings import GroupSettings
from klamm_coordinator.groups.topics import Topics
from klamm_coordinator.io.shards import Shards
from klamm_coordinator.kip848.group import JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH
from klamm_coordinator.kip848.messages import (
    NO_TIMEOUT,
    AssignedTopic,
    ConsumerGroupDescription,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatReply,
    ConsumerMemberDescription,
)
from klamm_coordinator.records.consumer_group_schemas import Partitions, TopicIdPartition
from klamm_coordinator.rpc.answering import answering
from klamm_coordinator.rpc.checks import check_group_id, check_length
from klamm_coordinator.rpc.described_topics import visible_to_caller
from klamm_coordinator.rpc.failures import text_of
from klamm_coordinator.rpc.hosts import host_of
from klamm_coordinator.rpc.users import user_of
from klamm_server.runtime.sliced_work import map_in_slices
from klamm_server.security.needs import DESCRIBE_GROUP, DESCRIBE_TOPIC, READ_GROUP, TOPIC_SHOWN

TOPIC_ID_BYTES = 16


class ConsumerGroupsRpc:
    """Answers the calls of consumer groups. `topics` returns the topics of the newest metadata image."""

    def __init__(
        self, shards: Shards[GroupRules], topics: Callable[[], Topics], settings: GroupSettings, coordinator_id: int
    ) -> None:
        self._shards = shards
        self._topics = topics
        self._settings = settings
        self._coordinator_id = coordinator_id

    @answering(ConsumerGroupHeartbeatResponse, "member_id")
    async def consumer_group_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, context: CallContext
    ) -> ConsumerGroupHeartbeatResponse:
        READ_GROUP.require(request.group_id)
        check_heartbeat(request, self._settings)
        for topic in request.subscribed_topic_names.names:
            DESCRIBE_TOPIC.require(topic)
        topics = visible_to_caller(self._topics())
        client_host = request.client_host or host_of(context.peer())
        user = user_of(context, client_host)
        reply = await self._shards.ask(
            request.group_id,
            lambda reply_id: _heartbeat(reply_id, request, client_host, user, topics),
            ConsumerGroupHeartbeatReply,
        )
        return ConsumerGroupHeartbeatResponse(
            error_code=reply.error,
            error_message=reply.message or text_of(reply.error),
            member_id=reply.member_id,
            member_epoch=reply.member_epoch,
            heartbeat_interval_ms=reply.heartbeat_interval_ms,
            assignment=None if reply.assignment is None else _assignment(reply.assignment),
        )

    async def consumer_group_describe(
        self, request: ConsumerGroupDescribeRequest, context: CallContext
    ) -> ConsumerGroupDescribeResponse:
        return ConsumerGroupDescribeResponse(groups=await map_in_slices(self._describe, request.group_ids))

    def _describe(self, group_id: str) -> DescribedConsumerGroup:
        try:
            DESCRIBE_GROUP.require(group_id)
            check_group_id(group_id)
            description = self._shards.of_key(group_id).rules.consumers.describe(group_id)
        except BrokerError as error:
            return DescribedConsumerGroup(group_id=group_id, error_code=error.code, error_message=error.message)
        if description is None:
            return DescribedConsumerGroup(
                group_id=group_id,
                error_code=ErrorCode.GROUP_ID_NOT_FOUND,
                error_message=f"consumer group {group_id!r} does not exist",
            )
        for topic in _assigned_topics(description):
            if not TOPIC_SHOWN.shows(topic):
                return DescribedConsumerGroup(
                    group_id=group_id,
                    error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                    error_message="The group has described topic(s) that the client is not authorized to describe.",
                )
        return _described(description, self._coordinator_id)


def _assigned_topics(description: ConsumerGroupDescription) -> set[str]:
    return {topic.topic for member in description.members for topic in (*member.assignment, *member.target)}


def check_heartbeat(request: ConsumerGroupHeartbeatRequest, settings: GroupSettings) -> None:
    """Raises the exception of INVALID_GROUP_ID, INVALID_REQUEST or UNSUPPORTED_ASSIGNOR if a field is not valid."""
    check_group_id(request.group_id)
    for name in ("member_id", "group_instance_id", "rack_id", "client_id", "client_host", "subscribed_topic_regex"):
        check_length(getattr(request, name), name, ErrorCode.INVALID_REQUEST, reserve_bytes=64)
    epoch = request.member_epoch
    if epoch == JOIN_EPOCH:
        _check_join(request)
    elif epoch > JOIN_EPOCH or epoch == LEAVE_EPOCH:
        _require(bool(request.member_id), "the member id is empty")
    else:
        _require(epoch == STATIC_LEAVE_EPOCH, f"member_epoch is {epoch}, expected -2 or more")
        _require(bool(request.member_id), "the member id is empty")
        _require(bool(request.group_instance_id), "member_epoch is -2, but the instance id is missing")
    # As in Kafka, a name that no topic can have matches nothing. Only a name that is too long for a record is refused.
    for topic in request.subscribed_topic_names.names:
        check_length(topic, "a topic name", ErrorCode.INVALID_REQUEST)
    for owned in request.owned.topics:
        _require(len(owned.topic_id) == TOPIC_ID_BYTES, f"a topic id has {len(owned.topic_id)} bytes, expected 16")
    if request.server_assignor and request.server_assignor not in settings.consumer_assignors:
        raise EXCEPTIONS[ErrorCode.UNSUPPORTED_ASSIGNOR](
            f"server_assignor is {request.server_assignor!r}, expected one of {', '.join(settings.consumer_assignors)}"
            " (group.consumer.assignors)"
        )


def _check_join(request: ConsumerGroupHeartbeatRequest) -> None:
    _require(request.rebalance_timeout_ms > 0, "a member that joins must send its rebalance timeout")
    _require(
        request.HasField("owned") and not request.owned.topics,
        "a member that joins must send an empty list of owned partitions",
    )
    # An empty list is a subscription too, to no topic yet.
    subscribes = request.HasField("subscribed_topic_names") or request.HasField("subscribed_topic_regex")
    _require(subscribes, "a member that joins must subscribe to topics, by name or by regular expression")


def _require(is_so: bool, problem: str) -> None:
    if not is_so:
        raise EXCEPTIONS[ErrorCode.INVALID_REQUEST](problem)


def _heartbeat(
    reply_id: int, request: ConsumerGroupHeartbeatRequest, client_host: str, user: str, topics: Topics
) -> ConsumerGroupHeartbeat:
    names = tuple(request.subscribed_topic_names.names) if request.HasField("subscribed_topic_names") else None
    return ConsumerGroupHeartbeat(
        reply_id=reply_id,
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        instance_id=request.group_instance_id or None,
        rack_id=request.rack_id or None,
        rebalance_timeout_ms=request.rebalance_timeout_ms if request.HasField("rebalance_timeout_ms") else NO_TIMEOUT,
        subscribed_topic_names=names,
        subscribed_topic_regex=request.subscribed_topic_regex if request.HasField("subscribed_topic_regex") else None,
        server_assignor=request.server_assignor or None,
        owned=_owned(request.owned.topics) if request.HasField("owned") else None,
        client_id=request.client_id,
        client_host=client_host,
        topics=topics,
        user=user,
    )


def _owned(topics: Iterable[ConsumerPartitions]) -> Partitions:
    return frozenset(TopicIdPartition(topic.topic_id, number) for topic in topics for number in topic.partitions)


def _assignment(topics: Iterable[AssignedTopic]) -> ConsumerAssignment:
    return ConsumerAssignment(
        topics=[
            ConsumerPartitions(topic_id=topic.topic_id, topic=topic.topic, partitions=topic.partitions)
            for topic in topics
        ]
    )


def _described(description: ConsumerGroupDescription, coordinator_id: int) -> DescribedConsumerGroup:
    return DescribedConsumerGroup(
        group_id=description.group_id,
        state=description.state,
        group_epoch=description.epoch,
        assignment_epoch=description.assignment_epoch,
        assignor=description.assignor,
        members=[_described_member(member) for member in description.members],
        coordinator_id=coordinator_id,
    )


def _described_member(member: ConsumerMemberDescription) -> DescribedConsumerMember:
    return DescribedConsumerMember(
        member_id=member.member_id,
        group_instance_id=member.metadata.instance_id or "",
        rack_id=member.metadata.rack_id or "",
        member_epoch=member.member_epoch,
        client_id=member.metadata.client_id,
        client_host=member.metadata.client_host,
        subscribed_topic_names=member.metadata.subscribed_topic_names,
        subscribed_topic_regex=member.metadata.subscribed_topic_regex or "",
        assignment=_assignment(member.assignment),
        target_assignment=_assignment(member.target),
        uses_classic_protocol=member.metadata.classic is not None,
        rebalance_timeout_ms=member.metadata.rebalance_timeout_ms,
    )
