"""The calls for administration: ListGroups, DescribeGroups, DeleteGroups."""

from __future__ import annotations

from collections import defaultdict

from klamm.errors import BrokerError, ErrorCode
from klamm.wire.calls import CallContext
from klamm.wire.v1.coordinator_pb2 import (
    DeletedGroup,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribedMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from klamm_coordinator.classic.messages import ClassicGroupDescription
from klamm_coordinator.classic.states import ClassicGroupState
from klamm_coordinator.group_shard.rules import GroupRules
from klamm_coordinator.io.shard_host import ShardHost
from klamm_coordinator.io.shards import Shards
from klamm_coordinator.offsets.messages import DeleteGroups, DeleteGroupsReply
from klamm_coordinator.rpc.answering import answering
from klamm_coordinator.rpc.checks import check_group_id
from klamm_coordinator.rpc.failures import text_of
from klamm_server.runtime.sliced_work import map_in_slices
from klamm_server.security.needs import DELETE_GROUP, DESCRIBE_GROUP, GROUP_SHOWN


class GroupAdminRpc:
    """The calls that administer groups. Each group of a request succeeds or fails by itself."""

    def __init__(self, shards: Shards[GroupRules], coordinator_id: int) -> None:
        self._shards = shards
        self._coordinator_id = coordinator_id

    @answering(ListGroupsResponse)
    async def list_groups(self, request: ListGroupsRequest, context: CallContext) -> ListGroupsResponse:
        wanted = {state.lower() for state in request.states}
        types = {kind.lower() for kind in request.types}
        groups = [group for host in self._shards for group in host.rules.list_groups()]
        listed = [
            ListedGroup(
                group_id=group.group_id, protocol_type=group.protocol_type, state=group.state, type=group.group_type
            )
            for group in sorted(groups)
            if GROUP_SHOWN.shows(group.group_id)
            and (not wanted or group.state.lower() in wanted)
            and (not types or group.group_type in types)
        ]
        return ListGroupsResponse(groups=listed)

    async def describe_groups(self, request: DescribeGroupsRequest, context: CallContext) -> DescribeGroupsResponse:
        return DescribeGroupsResponse(groups=await map_in_slices(self._describe, request.group_ids))

    def _describe(self, group_id: str) -> DescribedGroup:
        try:
            DESCRIBE_GROUP.require(group_id)
            check_group_id(group_id)
            description = self._shards.of_key(group_id).rules.classic.describe(group_id)
        except BrokerError as error:
            return DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.message)
        if description is None:
            code = ErrorCode.GROUP_ID_NOT_FOUND
            return DescribedGroup(
                group_id=group_id, error_code=code, error_message=code.text, state=ClassicGroupState.DEAD.value
            )
        return _described(description, self._coordinator_id)

    async def delete_groups(self, request: DeleteGroupsRequest, context: CallContext) -> DeleteGroupsResponse:
        """Deletes the groups, shard by shard. Answers when each shard has stored its deletions or refused them."""
        errors: dict[str, ErrorCode] = {}
        by_shard: dict[ShardHost[GroupRules], list[str]] = defaultdict(list)

        def assign(group_id: str) -> None:
            try:
                DELETE_GROUP.require(group_id)
                check_group_id(group_id)
                by_shard[self._shards.of_key(group_id)].append(group_id)
            except BrokerError as error:
                errors[group_id] = error.code

        await map_in_slices(assign, dict.fromkeys(request.group_ids))
        for host, group_ids in by_shard.items():
            errors.update(zip(group_ids, await _delete(host, tuple(group_ids)), strict=True))

        def deleted(group_id: str) -> DeletedGroup:
            code = errors[group_id]
            return DeletedGroup(group_id=group_id, error_code=code, error_message=text_of(code))

        return DeleteGroupsResponse(results=await map_in_slices(deleted, request.group_ids))


async def _delete(host: ShardHost[GroupRules], group_ids: tuple[str, ...]) -> tuple[ErrorCode, ...]:
    try:
        reply = await host.ask(lambda reply_id: DeleteGroups(reply_id=reply_id, group_ids=group_ids))
    except BrokerError as error:
        return (error.code,) * len(group_ids)
    assert isinstance(reply, DeleteGroupsReply), reply
    return reply.errors


def _described(description: ClassicGroupDescription, coordinator_id: int) -> DescribedGroup:
    members = [
        DescribedMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id or "",
            client_id=member.client_id,
            client_host=member.client_host,
            metadata=member.metadata,
            assignment=member.assignment,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
        )
        for member in description.members
    ]
    return DescribedGroup(
        group_id=description.group_id,
        state=description.state,
        protocol_type=description.protocol_type,
        protocol_name=description.protocol_name,
        generation_id=description.generation_id,
        leader=description.leader,
        members=members,
        coordinator_id=coordinator_id,
    )
