"""Tests that a request of DeleteGroups with very many groups lets the event loop run."""

from __future__ import annotations

import asyncio
from typing import Any

from klamm.acls import AclOperation, ResourceType
from klamm.errors import ErrorCode
from klamm.wire.v1.coordinator_pb2 import DeleteGroupsRequest
from klamm_coordinator.offsets.messages import DeleteGroupsReply
from klamm_coordinator.rpc.admin import GroupAdminRpc
from klamm_server.runtime.sliced_work import ITEMS_PER_TURN
from tests.support.callers import allow, called_with


class OneShard:
    """All shards in one. It deletes each group at once."""

    def of_key(self, group_id: str) -> OneShard:
        return self

    async def ask(self, message: Any) -> DeleteGroupsReply:
        return DeleteGroupsReply(errors=(ErrorCode.NONE,) * len(message(1).group_ids))


def test_a_long_request_to_delete_groups_does_not_keep_the_event_loop() -> None:
    names = [f"g{number}" for number in range(10 * ITEMS_PER_TURN)]
    shards: Any = OneShard()
    rpc = GroupAdminRpc(shards, coordinator_id=1)

    async def turns() -> int:
        context: Any = None
        task = asyncio.create_task(rpc.delete_groups(DeleteGroupsRequest(group_ids=names), context))
        count = 0
        while not task.done():
            await asyncio.sleep(0)
            count += 1
        codes = {result.group_id: result.error_code for result in task.result().results}
        assert list(codes) == names
        assert codes.pop("g0") == ErrorCode.NONE
        assert set(codes.values()) == {ErrorCode.GROUP_AUTHORIZATION_FAILED}
        return count

    with called_with(allow(AclOperation.DELETE, ResourceType.GROUP, "g0")):
        assert asyncio.run(turns()) >= 20, "the checks and the answer take turns"
