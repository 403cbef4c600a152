"""The event loop of a test of aiokafka over TLS."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

from tests.support.waiting import patience

T = TypeVar("T")


def run_aiokafka(scenario: Coroutine[None, None, T], timeout_s: float | None = None) -> T:
    """Runs the scenario and returns its result. aiokafka does not wait until its TLS connections are closed, which
    needs an answer of the server. The remaining ones are aborted, because their ResourceWarning would fail the test
    that runs when they are collected."""

    async def whole() -> T:
        try:
            return await asyncio.wait_for(scenario, patience() if timeout_s is None else timeout_s)
        finally:
            for transport in list(asyncio.get_running_loop()._transports.values()):  # type: ignore[attr-defined]
                transport.abort()
            await asyncio.sleep(0)  # their sockets are closed in the loop's next turn

    return asyncio.run(whole())
