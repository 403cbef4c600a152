"""Tests retries until a call succeeds."""

from __future__ import annotations

import asyncio
import contextlib
import random

import pytest

from klamm.errors import ErrorCode
from klamm.retry import Backoff
from klamm.rpc.retrying import Retries, retrying
from tests.support.loop_time import run_without_waiting

BACKOFF = Backoff(initial_ms=1, max_ms=4, jitter=0)


class Noted(Retries):
    def __init__(self, backoff: Backoff = BACKOFF) -> None:
        super().__init__(backoff, random.Random(1))
        self.told: list[tuple[int, str]] = []

    def on_failure(self, why: str) -> None:
        self.told.append((self.failures, why))


def failing(times: int, code: ErrorCode):
    left = times

    async def attempt() -> str:
        nonlocal left
        if left:
            left -= 1
            raise code.exception("not yet")
        return "done"

    return attempt


def test_a_retriable_error_is_retried_until_success_and_each_failure_is_reported():
    retries = Noted()
    assert run_without_waiting(retrying(failing(3, ErrorCode.NETWORK_EXCEPTION), retries)) == "done"
    assert retries.told == [(number, "NETWORK_EXCEPTION: not yet") for number in (1, 2, 3)]
    assert retries.failures == 0


def test_a_fatal_error_is_raised_immediately():
    retries = Noted()
    with pytest.raises(ErrorCode.INVALID_REQUEST.exception("").__class__):
        asyncio.run(retrying(failing(1, ErrorCode.INVALID_REQUEST), retries))
    assert retries.told == []


def test_retry_pauses_grow_until_a_reset():
    retries = Noted()
    assert [retries.failed("x") for _ in range(4)] == [0.001, 0.002, 0.004, 0.004]
    retries.reset()
    assert retries.failed("x") == 0.001


def test_a_cancelled_caller_does_not_pause():
    async def scenario() -> list[tuple[int, str]]:
        retries = Noted(Backoff(initial_ms=1_000_000, max_ms=1_000_000))
        outcome: list[BaseException] = []

        async def swallow_the_first_cancellation() -> None:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.get_running_loop().create_future()
            try:
                await retries.pause("a status")
            except asyncio.CancelledError as error:
                outcome.append(error)

        task = asyncio.ensure_future(swallow_the_first_cancellation())
        await asyncio.sleep(0)
        task.cancel()
        await task
        assert outcome
        return retries.told

    assert asyncio.run(scenario()) == []
