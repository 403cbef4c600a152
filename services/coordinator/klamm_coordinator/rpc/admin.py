"""For people: ListGroups, DescribeGroups, DeleteGroups."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from klamm.errors import BrokerError, ErrorCode
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
from klamm_coordinator.group.messages import GroupDescription
from klamm_coordinator.group.states import GroupState
from klamm_coordinator.group_host import GroupHost
from klamm_coordinator.offsets.messages import DeleteGroups, DeleteGroupsReply
from klamm_coordinator.rpc.checks import check_group_id
from klamm_coordinator.rpc.failures import text_of
from klamm_coordinator.shard import shard
from klamm_coordinator.shards import Shards


class GroupAdminRpc:
    """Each group of a request succeeds or fails by itself."""

    def __init__(self, shards: Shards[GroupHost], coordinator_id: int) -> None:
        self._shards = shards
        self._coordinator_id = coordinator_id

    async def list_groups(self, request: ListGroupsRequest, context: Any) -> ListGroupsResponse:
        wanted = {state.lower() for state in request.states}
        types = {kind.lower() for kind in request.types}
        groups: list[shard.ListedGroup] = []
        try:
            for host in self._shards:
                groups += host.shard.list_groups()
        except BrokerError as error:
            return ListGroupsResponse(error_code=error.code, error_message=error.message)
        listed = [
            ListedGroup(group_id=one.group_id, protocol_type=one.protocol_type, state=one.state, type=one.group_type)
            for one in sorted(groups)
            if (not wanted or one.state.lower() in wanted) and (not types or one.group_type in types)
        ]
        return ListGroupsResponse(groups=listed)

    async def describe_groups(self, request: DescribeGroupsRequest, context: Any) -> DescribeGroupsResponse:
        return DescribeGroupsResponse(groups=[self._describe(group_id) for group_id in request.group_ids])

    def _describe(self, group_id: str) -> DescribedGroup:
        try:
            check_group_id(group_id)
            description = self._shards.of_key(group_id).shard.describe(group_id)
        except BrokerError as error:
            return DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.message)
        if description is None:
            code = ErrorCode.GROUP_ID_NOT_FOUND
            return DescribedGroup(
                group_id=group_id, error_code=code, error_message=code.text, state=GroupState.DEAD.value
            )
        return _described(description, self._coordinator_id)

    async def delete_groups(self, request: DeleteGroupsRequest, context: Any) -> DeleteGroupsResponse:
        """Shard by shard: each group is answered when its own shard has stored it."""
        errors: dict[str, ErrorCode] = {}
        by_shard: dict[GroupHost, list[str]] = defaultdict(list)
        for group_id in dict.fromkeys(request.group_ids):
            try:
                check_group_id(group_id)
                by_shard[self._shards.of_key(group_id)].append(group_id)
            except BrokerError as error:
                errors[group_id] = error.code
        for host, group_ids in by_shard.items():
            errors.update(zip(group_ids, await _delete(host, tuple(group_ids)), strict=True))
        results = [
            DeletedGroup(group_id=one, error_code=errors[one], error_message=text_of(errors[one]))
            for one in request.group_ids
        ]
        return DeleteGroupsResponse(results=results)


async def _delete(host: GroupHost, group_ids: tuple[str, ...]) -> tuple[ErrorCode, ...]:
    try:
        reply = await host.ask(lambda reply_id: DeleteGroups(reply_id=reply_id, group_ids=group_ids))
    except BrokerError as error:
        return (error.code,) * len(group_ids)
    assert isinstance(reply, DeleteGroupsReply), reply
    return reply.errors


def _described(description: GroupDescription, coordinator_id: int) -> DescribedGroup:
    members = [
        DescribedMember(
            member_id=one.member_id,
            group_instance_id=one.instance_id or "",
            client_id=one.client_id,
            client_host=one.client_host,
            metadata=one.metadata,
            assignment=one.assignment,
        )
        for one in description.members
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
