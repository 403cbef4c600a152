"""Tests whose session a call has."""

from __future__ import annotations

import asyncio

from klamm.acls import AclOperation, ResourceType
from klamm_server.runtime.waiting import Waiting
from klamm_server.security.session import CALLER, called_by
from tests.support.callers import allow, session_of

READ_ORDERS = allow(AclOperation.READ, ResourceType.TOPIC, "orders")


def test_a_request_runs_as_its_session_until_it_is_answered() -> None:
    session = session_of(READ_ORDERS)
    seen: list[object] = []

    def at_once(request: str) -> str:
        seen.append(CALLER.get())
        return request

    def in_time(request: str) -> Waiting[str]:
        async def answer() -> str:
            await asyncio.sleep(0)
            seen.append(CALLER.get())
            return request

        return Waiting(answer())

    async def run() -> None:
        assert called_by(session, at_once, "now") == "now"
        answer = called_by(session, in_time, "later")
        assert CALLER.get() is None
        assert isinstance(answer, Waiting)
        assert await asyncio.create_task(answer.work) == "later"
        assert CALLER.get() is None

    asyncio.run(run())
    assert seen == [session, session]
