from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from klamm.client_task import client_task
from klamm.cluster.bootstrap import first_answer
from klamm.errors import KlammError, NoBrokerError
from tests.support.loop_time import run_without_waiting
from tests.support.waiting import settle

PATIENCE_S = 1.0


class Servers:
    """Servers that answer with their name after some seconds, or fail after some seconds."""

    def __init__(self, answers: dict[str, float], failures: dict[str, float] | None = None) -> None:
        self.asked: dict[str, float] = {}
        """The time at which each server was asked."""
        self.cancelled: list[str] = []
        self._answers = answers
        self._failures = failures or {}

    async def ask(self, name: str) -> str:
        self.asked[name] = asyncio.get_running_loop().time()
        try:
            await asyncio.sleep(self._answers.get(name, self._failures.get(name, 3600)))
        except asyncio.CancelledError:
            self.cancelled.append(name)
            raise
        if name in self._failures:
            raise NoBrokerError(name)
        return name

    async def first(self) -> tuple[str | None, list[KlammError]]:
        names = sorted({**self._answers, **self._failures})
        return await first_answer(names, self.ask, patience_s=PATIENCE_S)


def test_one_server_is_asked_if_it_answers_in_time() -> None:
    servers = Servers({"a": 0.9, "b": 0.0})
    assert run_without_waiting(servers.first()) == ("a", [])
    assert list(servers.asked) == ["a"]


def test_a_silent_server_does_not_hide_the_next() -> None:
    servers = Servers({"a": 3600, "b": 3600, "c": 0.5})
    assert run_without_waiting(servers.first()) == ("c", [])
    assert servers.asked == {"a": 0.0, "b": 1.0, "c": 2.0}
    assert servers.cancelled == ["a", "b"]


def test_nothing_is_raised_if_the_event_loop_ends_before_an_answer() -> None:
    """Python closes the coroutine of a client that was not closed when the program ends."""
    asking = Servers({"a": 3600}).first()

    async def ask() -> None:
        client_task(asking, name="asking")
        await settle()

    loop = asyncio.new_event_loop()
    loop.run_until_complete(ask())
    loop.close()
    asking.close()


def test_a_slow_server_may_still_be_the_first_to_answer() -> None:
    servers = Servers({"a": 1.5, "b": 3600})
    assert run_without_waiting(servers.first()) == ("a", [])
    assert servers.cancelled == ["b"]


def test_the_next_server_is_asked_at_once_after_a_failure() -> None:
    servers = Servers({"b": 0.0}, {"a": 0.25})
    answer, errors = run_without_waiting(servers.first())
    assert answer == "b"
    assert [str(error) for error in errors] == ["a"]
    assert servers.asked["b"] == 0.25


def test_there_is_no_answer_after_all_have_failed() -> None:
    servers = Servers({}, {"a": 5.0, "b": 0.0, "c": 0.0})
    answer, errors = run_without_waiting(servers.first())
    assert answer is None
    assert [str(error) for error in errors] == ["b", "c", "a"]


def test_a_cancelled_caller_leaves_no_call_running() -> None:
    servers = Servers({"a": 3600, "b": 3600})

    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(10):
                await servers.first()

    run_without_waiting(main())
    assert servers.cancelled == ["a", "b"]


def test_another_error_is_raised() -> None:
    async def ask(name: str) -> str:
        raise ValueError(name)

    calls: Callable[[str], Awaitable[str]] = ask
    with pytest.raises(ValueError, match="a"):
        asyncio.run(first_answer(["a", "b"], calls, patience_s=PATIENCE_S))


def test_a_framework_that_cancels_all_tasks_does_not_see_the_calls() -> None:
    servers = Servers({"a": 3600, "b": 1.0})

    async def main() -> str | None:
        asking = client_task(servers.first(), name="asking")
        await asyncio.sleep(1.5)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        answer, _ = await asking
        return answer

    assert run_without_waiting(main()) == "b"
