"""The calls of members of classic groups: JoinGroup, SyncGroup, Heartbeat, LeaveGroup."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from klamm.wire.calls import CallContext
from klamm.wire.v1.coordinator_pb2 import (
    HeartbeatRequest,
    JoinedMember,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    LeftMember,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from klamm_coordinator.classic.messages import (
    Heartbeat,
    HeartbeatReply,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    Leaver,
    LeaveReply,
    Protocol,
    SyncGroup,
    SyncReply,
)
from klamm_coordinator.group_shard.rules import GroupRules
from klamm_coordinator.groups.settings import GroupSettings
from klamm_coordinator.groups.topics import Topics
from klamm_coordinator.io.shards import Shards
from klamm_coordinator.rpc.answering import answering
from klamm_coordinator.rpc.checks import check_group_id, check_join
from klamm_coordinator.rpc.described_topics import visible_to_caller
from klamm_coordinator.rpc.failures import text_of
from klamm_coordinator.rpc.hosts import host_of
from klamm_coordinator.rpc.users import user_of
from klamm_server.security.needs import READ_GROUP


class ClassicGroupsRpc:
    """Answers the calls of members of classic groups. A join or sync that waits is a future of its shard. `topics`
    returns the topics of the newest metadata image."""

    def __init__(self, shards: Shards[GroupRules], topics: Callable[[], Topics], settings: GroupSettings) -> None:
        self._shards = shards
        self._topics = topics
        self._settings = settings

    @answering(JoinGroupResponse, "member_id")
    async def join_group(self, request: JoinGroupRequest, context: CallContext) -> JoinGroupResponse:
        READ_GROUP.require(request.group_id)
        check_join(request, self._settings)
        join = _join(request, context, visible_to_caller(self._topics()))
        return _join_response(await self._shards.ask(request.group_id, join, JoinReply))

    @answering(SyncGroupResponse)
    async def sync_group(self, request: SyncGroupRequest, context: CallContext) -> SyncGroupResponse:
        READ_GROUP.require(request.group_id)
        check_group_id(request.group_id)
        reply = await self._shards.ask(request.group_id, _sync(request), SyncReply)
        return SyncGroupResponse(
            error_code=reply.error,
            error_message=text_of(reply.error),
            protocol_type=reply.protocol_type,
            protocol_name=reply.protocol_name,
            assignment=reply.assignment,
        )

    @answering(MemberResponse)
    async def heartbeat(self, request: HeartbeatRequest, context: CallContext) -> MemberResponse:
        READ_GROUP.require(request.group_id)
        check_group_id(request.group_id)
        heartbeat = partial(
            Heartbeat,
            group_id=request.group_id,
            generation_id=request.generation_id,
            member_id=request.member_id,
            instance_id=request.group_instance_id or None,
        )
        reply = await self._shards.ask(request.group_id, lambda reply_id: heartbeat(reply_id=reply_id), HeartbeatReply)
        return MemberResponse(error_code=reply.error, error_message=text_of(reply.error))

    @answering(LeaveGroupResponse)
    async def leave_group(self, request: LeaveGroupRequest, context: CallContext) -> LeaveGroupResponse:
        READ_GROUP.require(request.group_id)
        check_group_id(request.group_id)
        leavers = tuple(
            Leaver(member_id=member.member_id, instance_id=member.group_instance_id or None, reason=member.reason)
            for member in request.members
        )
        leave = partial(LeaveGroup, group_id=request.group_id, leavers=leavers)
        reply = await self._shards.ask(request.group_id, lambda reply_id: leave(reply_id=reply_id), LeaveReply)
        return _leave_response(request, reply)


def _join(request: JoinGroupRequest, context: CallContext, topics: Topics) -> Any:
    user = user_of(context, request.client_host)
    return lambda reply_id: JoinGroup(
        reply_id=reply_id,
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id or None,
        client_id=request.client_id,
        client_host=request.client_host or host_of(context.peer()),
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms or request.session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple(Protocol(name=protocol.name, metadata=protocol.metadata) for protocol in request.protocols),
        reason=request.reason,
        user=user,
        joins_without_id=request.joins_without_id,
        topics=topics,
    )


def _join_response(reply: JoinReply) -> JoinGroupResponse:
    members = [
        JoinedMember(member_id=member.member_id, group_instance_id=member.instance_id or "", metadata=member.metadata)
        for member in reply.members
    ]
    return JoinGroupResponse(
        error_code=reply.error,
        error_message=text_of(reply.error),
        generation_id=reply.generation_id,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol_name,
        leader=reply.leader,
        member_id=reply.member_id,
        members=members,
        skip_assignment=reply.skip_assignment,
    )


def _sync(request: SyncGroupRequest) -> Any:
    return lambda reply_id: SyncGroup(
        reply_id=reply_id,
        group_id=request.group_id,
        generation_id=request.generation_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id or None,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments=tuple((assignment.member_id, assignment.assignment) for assignment in request.assignments),
    )


def _leave_response(request: LeaveGroupRequest, reply: LeaveReply) -> LeaveGroupResponse:
    return LeaveGroupResponse(
        error_code=reply.error,
        error_message=text_of(reply.error),
        members=[
            LeftMember(member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=error)
            for member, error in zip(request.members, reply.members, strict=bool(reply.members))
        ],
    )
