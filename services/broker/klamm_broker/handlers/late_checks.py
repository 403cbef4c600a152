"""Checks record sets on a thread if the checks would take the event loop too long.

A partition's record sets are appended in the order of their requests. So while a set of a partition is being checked,
later sets of the same partition are checked on the thread too. The thread ends a partition's work in order.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from klamm.model import TopicPartition
from klamm_broker.io.follow import follow
from klamm_broker.io.record_thread import RecordThread
from klamm_broker.log.segment.check_budget import CheckBudget
from klamm_broker.log.segment.record_set import AppendOrigin, CheckedSet, check_produced
from klamm_broker.replica.partition import Partition
from klamm_server.runtime.clock import Clock

T = TypeVar("T")


class LateChecks:
    """The record sets that are being checked on a thread."""

    def __init__(self, thread: RecordThread, clock: Clock) -> None:
        self._thread = thread
        self._clock = clock
        self.checking: Counter[TopicPartition] = Counter()
        """The number of record sets of each partition that are being checked."""

    def begin(self, partition: Partition, records: memoryview, append: Callable[[CheckedSet], T]) -> asyncio.Future[T]:
        """Begins to check the records of a client. Calls `append` with the checked set, in the order in which the
        checks of a partition began. The future has the result of `append`, or an exception of `check_produced`."""
        topic_partition, config, now_ms = partition.topic_partition, partition.log.config, self._clock.wall_ms()

        def check(budget: CheckBudget) -> CheckedSet:
            batches = check_produced(records, config, now_ms=now_ms, origin=AppendOrigin.CLIENT, budget=budget)
            return CheckedSet(batches, len(records), now_ms)

        appended: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.checking[topic_partition] += 1
        appended.add_done_callback(lambda future: self._on_appended(topic_partition, future))
        checked = self._thread.begin(check, topic_partition)
        follow(checked, appended, lambda batches: appended.set_result(append(batches)))
        return appended

    def _on_appended(self, topic_partition: TopicPartition, appended: asyncio.Future[T]) -> None:
        self.checking[topic_partition] -= 1
        if not self.checking[topic_partition]:
            del self.checking[topic_partition]
        if not appended.cancelled():
            # If the client has gone, no other code reads the exception, and asyncio would log it.
            appended.exception()
