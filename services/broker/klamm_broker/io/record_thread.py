"""Threads for work on single records that would take the event loop too long.

Usual work has one thread, because Python runs one thread at a time anyway. Some clients send records that take seconds
or minutes. So work that exceeds a budget there is done again on a second thread, and does not keep usual work waiting.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Generic, NamedTuple, TypeVar

from klamm.process import PROCESS
from klamm_broker.io.follow import follow
from klamm_broker.log.segment.check_budget import LATE_NS, CheckBudget, LongBudget, OverBudgetError

T = TypeVar("T")
Work = Callable[[CheckBudget], T]
"""Work that raises OverBudgetError if it needs more than a budget. A LongBudget has no bound."""


class _Done(NamedTuple, Generic[T]):
    result: T


class RecordThread:
    """A thread for usual work, one for long work, and their queues. The owner calls `close` when no more work comes."""

    def __init__(self, name: str) -> None:
        self._usual = PROCESS.get().make_executor(1, name)
        self._long = PROCESS.get().make_executor(1, f"long-{name}")
        self._long_budget = LongBudget()
        self._begun: Counter[Hashable] = Counter()
        self._with_long_work: set[Hashable] = set()
        """The keys of long work. The usual thread adds them. The event loop removes a key that has no work left."""

    def begin(self, work: Work[T], key: Hashable = None) -> asyncio.Future[T]:
        """Hands `work` over and returns its future result. `work` uses nothing that the event loop may change.

        Work with the same key ends in the order in which it was handed over. Work without a key has no order."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[T] = loop.create_future()

        def on_tried(done: _Done[T] | None) -> None:
            if done is not None:
                ended.set_result(done.result)
            else:
                follow(loop.run_in_executor(self._long, work, self._long_budget), ended, ended.set_result)

        tried = loop.run_in_executor(self._usual, self._try, work, key)
        self._begun[key] += 1
        ended.add_done_callback(lambda _: self._on_ended(key))
        follow(tried, ended, on_tried)
        return ended

    def _try(self, work: Work[T], key: Hashable) -> _Done[T] | None:
        """Returns the result, or None if the work is for the other thread."""
        if key is not None and key in self._with_long_work:
            return None
        try:
            return _Done(work(CheckBudget(LATE_NS)))
        except OverBudgetError:
            if key is not None:
                self._with_long_work.add(key)
            return None

    def _on_ended(self, key: Hashable) -> None:
        self._begun[key] -= 1
        if not self._begun[key]:
            del self._begun[key]
            self._with_long_work.discard(key)

    def close(self) -> None:
        """Waits until the current work has ended, and drops the work behind it. Long work on large batches ends
        early."""
        self._long_budget.is_stopped = True
        for threads in (self._usual, self._long):
            threads.shutdown(wait=True, cancel_futures=True)
