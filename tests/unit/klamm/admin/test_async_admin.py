"""Tests that no call of an Admin method is running after the method has raised an error."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from klamm.admin.async_admin import AsyncAdmin
from klamm.admin.calls import AdminCalls
from klamm.cluster.client import KlammClient
from klamm.cluster.metadata import ClusterView, Node
from klamm.config import ClientConfig
from klamm.errors import ErrorCode, GroupAuthorizationFailedError, NonEmptyGroupError
from klamm.wire.v1 import coordinator_pb2

TURNS = 50
"""The turns of the loop after which an error of coordinator 1 has reached the caller, if nothing delays it."""


class Client(KlammClient):
    """A client of two coordinators. Coordinator 1 refuses each call at once. Coordinator 2 answers after `go_on`. Group
    "a" is at coordinator 1, and group "b" at coordinator 2."""

    def __init__(self) -> None:
        super().__init__(ClientConfig.parse(retry_backoff_ms=0, retry_backoff_max_ms=0))
        self.cluster = ClusterView(coordinators={number: Node(node_id=number, host="h", port=1) for number in (1, 2)})
        self.go_on = asyncio.Event()
        self.ended = ""
        """How the call at coordinator 2 ended."""

    async def refresh_metadata(self, topics: Any = None) -> ClusterView:
        return self.cluster

    async def coordinator_for(self, group_id: str, key_type: int = 0) -> Any:
        return self.coordinator(1 if group_id == "a" else 2)

    def coordinator(self, node_id: int) -> Any:
        async def delete_groups(request: Any) -> Any:
            code = await self._code(node_id, ErrorCode.NON_EMPTY_GROUP)
            return coordinator_pb2.DeleteGroupsResponse(results=[coordinator_pb2.DeletedGroup(error_code=code)])

        async def list_groups(request: Any) -> Any:
            if await self._code(node_id, ErrorCode.GROUP_AUTHORIZATION_FAILED):
                raise GroupAuthorizationFailedError("refused")
            return coordinator_pb2.ListGroupsResponse()

        return SimpleNamespace(delete_groups=delete_groups, list_groups=list_groups)

    async def _code(self, node_id: int, refusal: ErrorCode) -> ErrorCode:
        if node_id == 1:
            return refusal
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            self.ended = "cancelled"
            raise
        self.ended = "answered"
        return ErrorCode.NONE


def admin_of(client: Client) -> AsyncAdmin:
    admin = AsyncAdmin.__new__(AsyncAdmin)
    admin._client, admin._calls = client, AdminCalls(client)
    return admin


def test_a_deletion_raises_its_error_after_the_other_deletions_have_ended() -> None:
    async def run() -> None:
        client = Client()
        deleting = asyncio.ensure_future(admin_of(client).delete_groups(["a", "b"]))
        for _ in range(TURNS):
            await asyncio.sleep(0)
        assert not deleting.done()
        client.go_on.set()
        with pytest.raises(NonEmptyGroupError):
            await deleting
        assert client.ended == "answered"

    asyncio.run(run())


def test_a_listing_that_fails_at_one_coordinator_is_cancelled_at_the_others() -> None:
    async def run() -> None:
        client = Client()
        with pytest.raises(GroupAuthorizationFailedError):
            await admin_of(client).list_groups()
        assert client.ended == "cancelled"

    asyncio.run(run())
