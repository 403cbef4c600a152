"""The event loop of a test of aiokafka over TLS."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

from tests.support.waiting import patience

T = TypeVar("T")


def run_aiokafka(scenario: Coroutine[None, None, T], timeout_s: float | None = None) -> T:
    """What the scenario returns.

    aiokafka does not wait for the end of the TLS connections that it closes, which needs an answer of the server. Those
    that are left are aborted: their ResourceWarning would strike the test that runs when they are collected."""

    async def whole() -> T:
        try:
            return await asyncio.wait_for(scenario, patience() if timeout_s is None else timeout_s)
        finally:
            for transport in list(asyncio.get_running_loop()._transports.values()):  # type: ignore[attr-defined]
                transport.abort()
            await asyncio.sleep(0)  # their sockets are closed in the loop's next turn

    return asyncio.run(whole())
