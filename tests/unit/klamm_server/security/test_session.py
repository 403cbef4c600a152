"""Tests whose session a call has, and the rights that handlers see."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from klamm.acls import CLUSTER_NAME, AclOperation, ResourceType
from klamm.errors import EXCEPTIONS, ErrorCode
from klamm_server.security.session import (
    CALLER,
    called_by,
    for_itself,
    may,
    may_with_any,
    may_with_cluster,
    require,
    require_cluster,
)
from tests.support.callers import ALICE, allow, called_with, session_of

READ_ORDERS = allow(AclOperation.READ, ResourceType.TOPIC, "orders")


def test_without_a_caller_every_operation_is_allowed() -> None:
    assert CALLER.get() is None
    assert may(AclOperation.READ, ResourceType.TOPIC, "orders")
    assert may_with_cluster(AclOperation.ALTER)
    assert may_with_any(AclOperation.WRITE, ResourceType.TOPIC)
    require(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, "t")
    require_cluster(AclOperation.CLUSTER_ACTION)


def test_a_caller_may_do_what_its_acls_allow() -> None:
    alter = allow(AclOperation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
    with called_with(READ_ORDERS, alter):
        assert may(AclOperation.READ, ResourceType.TOPIC, "orders")
        assert not may(AclOperation.WRITE, ResourceType.TOPIC, "orders")
        assert may_with_any(AclOperation.READ, ResourceType.TOPIC)
        assert not may_with_any(AclOperation.WRITE, ResourceType.TOPIC)
        assert may_with_cluster(AclOperation.CLUSTER_ACTION, AclOperation.ALTER)
        assert not may_with_cluster(AclOperation.CLUSTER_ACTION)
        require_cluster(AclOperation.ALTER)
        with for_itself():
            assert may(AclOperation.WRITE, ResourceType.TOPIC, "orders")
        assert not may(AclOperation.WRITE, ResourceType.TOPIC, "orders")


@pytest.mark.parametrize(
    ("resource_type", "code"),
    [
        (ResourceType.TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (ResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
        (ResourceType.CLUSTER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (ResourceType.TRANSACTIONAL_ID, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    ],
)
def test_a_refusal_names_neither_the_resource_nor_the_principal(resource_type: ResourceType, code: ErrorCode) -> None:
    with called_with(), pytest.raises(EXCEPTIONS[code]) as refused:
        require(AclOperation.DESCRIBE, resource_type, "canary")
    assert "canary" not in str(refused.value)
    assert ALICE not in str(refused.value)


def test_a_request_runs_as_its_session_until_it_is_answered() -> None:
    session = session_of(READ_ORDERS)
    seen: list[object] = []

    def at_once(request: str) -> str:
        seen.append(CALLER.get())
        return request

    def in_time(request: str) -> Coroutine[Any, Any, str]:
        async def answer() -> str:
            await asyncio.sleep(0)
            seen.append(CALLER.get())
            return request

        return answer()

    async def run() -> None:
        assert called_by(session, at_once, "now") == "now"
        answer = called_by(session, in_time, "later")
        assert CALLER.get() is None
        assert isinstance(answer, Coroutine)
        assert await asyncio.create_task(answer) == "later"
        assert CALLER.get() is None

    asyncio.run(run())
    assert seen == [session, session]
