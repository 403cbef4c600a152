"""Tests that no call is running after several calls have ended with an error."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

import pytest

from klamm.several_calls import until_all_ended, until_first_error

Together = Callable[[Iterable[Awaitable[int]]], Awaitable[list[int]]]
both = pytest.mark.parametrize("together", [until_first_error, until_all_ended])


class Calls:
    """Calls by number. Call 0 ends at once. The others wait until `go_on` is set."""

    def __init__(self) -> None:
        self.running: set[int] = set()
        self.cancelled: set[int] = set()
        self.go_on = asyncio.Event()

    async def call(self, number: int, error: Exception | None = None) -> int:
        self.running.add(number)
        try:
            if number:
                await self.go_on.wait()
            if error is not None:
                raise error
        except asyncio.CancelledError:
            # A call may take a while to end after it was cancelled.
            await asyncio.sleep(0)
            self.cancelled.add(number)
            raise
        finally:
            self.running.remove(number)
        return number


@both
def test_the_results_are_in_the_order_of_the_calls(together: Together) -> None:
    async def run() -> None:
        calls = Calls()
        calls.go_on.set()
        assert await together(calls.call(number) for number in (2, 0, 1)) == [2, 0, 1]
        assert await together([]) == []

    asyncio.run(run())


def test_reads_are_cancelled_and_have_ended_when_one_fails() -> None:
    async def run() -> None:
        calls = Calls()
        with pytest.raises(ValueError, match="refused"):
            await until_first_error([calls.call(1), calls.call(0, ValueError("refused")), calls.call(2)])
        assert (calls.running, calls.cancelled) == (set(), {1, 2})

    asyncio.run(run())


def test_changes_end_before_the_first_error_is_raised() -> None:
    async def run() -> None:
        calls = Calls()
        wanted = [calls.call(1, ValueError("first")), calls.call(2), calls.call(0, KeyError("early"))]
        task = asyncio.ensure_future(until_all_ended(wanted))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert (task.done(), calls.running) == (False, {1, 2})
        calls.go_on.set()
        with pytest.raises(ValueError, match="first") as raised:
            await task
        assert raised.value.__notes__ == ["also: 'early'"]
        assert (calls.running, calls.cancelled) == (set(), set())

    asyncio.run(run())


@both
def test_the_calls_have_ended_when_the_caller_is_cancelled(together: Together) -> None:
    async def run() -> None:
        calls = Calls()
        task = asyncio.ensure_future(together([calls.call(1), calls.call(2)]))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (calls.running, calls.cancelled) == (set(), {1, 2})

    asyncio.run(run())
