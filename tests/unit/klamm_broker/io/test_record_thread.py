"""Tests the threads for work on records: the order of work, and that long work does not delay usual work."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Awaitable, Callable

import pytest

from klamm.errors import BrokerError
from klamm_broker.io.record_thread import RecordThread, Work
from klamm_broker.log.segment.check_budget import LATE_NS, CheckBudget
from tests.support.waiting import patience


def run(test: Callable[[RecordThread], Awaitable[None]]) -> None:
    """Runs a test on an event loop, with threads that are closed after it."""

    async def with_threads() -> None:
        threads = RecordThread("records")
        try:
            async with asyncio.timeout(patience()):
                await test(threads)
        finally:
            threads.close()

    asyncio.run(with_threads())


def thread_of(budget: CheckBudget) -> str:
    return threading.current_thread().name.rpartition("_")[0]


def long_work(go_on: threading.Event) -> Work[str]:
    """Returns work that is over the budget of usual work, and then waits for an event."""

    def work(budget: CheckBudget) -> str:
        budget.take(LATE_NS + 1)
        assert go_on.wait(patience())
        return thread_of(budget)

    return work


def test_long_work_delays_only_work_with_the_same_key() -> None:
    async def test(threads: RecordThread) -> None:
        go_on = threading.Event()
        long = threads.begin(long_work(go_on), "a")
        after, of_others = threads.begin(thread_of, "a"), [threads.begin(thread_of, key) for key in ("b", None)]
        assert await asyncio.gather(*of_others) == ["records", "records"]
        assert not long.done()
        assert not after.done()
        ended: list[str] = []
        long.add_done_callback(lambda _: ended.append("long"))
        after.add_done_callback(lambda _: ended.append("after"))
        go_on.set()
        assert await asyncio.gather(long, after) == ["long-records", "long-records"]
        assert ended == ["long", "after"]
        assert await threads.begin(thread_of, "a") == "records"

    run(test)


def test_many_pieces_of_work_with_one_key_end_in_order() -> None:
    async def test(threads: RecordThread) -> None:
        go_on = threading.Event()
        go_on.set()
        ended: list[int] = []
        begun = [threads.begin(long_work(go_on) if number % 3 == 1 else thread_of, "a") for number in range(50)]
        for number, one in enumerate(begun):
            one.add_done_callback(lambda _, number=number: ended.append(number))
        await asyncio.gather(*begun)
        assert ended == list(range(50))

    run(test)


class LateKey:
    """A key whose work ends before `begin` has returned.

    The first hash in the event loop's thread after `arm` waits until the thread has ended all work before it."""

    def __init__(self) -> None:
        self._threads: RecordThread | None = None

    def arm(self, threads: RecordThread) -> None:
        self._threads = threads

    def __hash__(self) -> int:
        threads, is_loop = self._threads, threading.current_thread() is threading.main_thread()
        if threads is not None and is_loop:
            self._threads = None
            ended = threading.Event()
            threads.begin(lambda _: ended.set())
            assert ended.wait(patience())
        return 1


def test_work_that_ends_at_once_does_not_overtake_earlier_work() -> None:
    async def test(threads: RecordThread) -> None:
        key, go_on, ended = LateKey(), threading.Event(), list[str]()
        first = threads.begin(lambda _: go_on.wait(patience()), key)
        first.add_done_callback(lambda _: ended.append("first"))
        await asyncio.sleep(0)
        go_on.set()
        key.arm(threads)
        second = threads.begin(thread_of, key)
        second.add_done_callback(lambda _: ended.append("second"))
        await asyncio.gather(first, second)
        assert ended == ["first", "second"]

    run(test)


@pytest.mark.parametrize("is_long", [False, True])
def test_errors_are_those_of_the_work(is_long: bool) -> None:
    def fail(budget: CheckBudget) -> None:
        budget.take((LATE_NS + 1) * is_long)
        raise ValueError("no")

    async def test(threads: RecordThread) -> None:
        with pytest.raises(ValueError, match="no"):
            await threads.begin(fail, "a")
        assert await threads.begin(thread_of, "a") == "records"

    run(test)


def test_work_that_was_cancelled_leaves_nothing_behind() -> None:
    async def test(threads: RecordThread) -> None:
        go_on = threading.Event()
        long = threads.begin(long_work(go_on), "a")
        assert await threads.begin(thread_of, "b") == "records"
        long.cancel()
        with pytest.raises(asyncio.CancelledError):
            await long
        await asyncio.sleep(0)  # the call-backs of the future have run
        go_on.set()
        assert await threads.begin(thread_of, "a") == "records"

    run(test)


def test_a_stop_ends_long_work() -> None:
    async def main() -> None:
        begun = threading.Event()

        def endless(budget: CheckBudget) -> None:
            budget.take(LATE_NS + 1)
            begun.set()
            for _ in budget.pacing(itertools.repeat(b"piece")):
                pass

        threads = RecordThread("records")
        work = threads.begin(endless, "a")
        assert await asyncio.to_thread(begun.wait, patience())
        threads.close()
        with pytest.raises(BrokerError, match="the broker stopped"):
            await work

    asyncio.run(main())
