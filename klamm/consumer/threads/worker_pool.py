"""One consumer, polled by one thread, and a pool of threads that process what it polls.

The pool is for work that takes longer than polling. A partition's records are processed one after the other, in order,
so more threads than partitions do not help. The pool commits only records that were processed: after a crash, records
may be processed again, but none is skipped. A partition with too many waiting records is paused. Polls continue, so
that the consumer stays in its group however long a record takes.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from klamm.consumer.config import ConsumerConfig
from klamm.consumer.record import ConsumerRecord
from klamm.consumer.sync_consumer import Consumer
from klamm.consumer.threads.work_ledger import PartitionWork, WorkLedger
from klamm.errors import ConfigError, KlammError
from klamm.model import TopicPartition
from klamm.offsets import OffsetAndMetadata
from klamm.threads.waiting_threads import WaitingThreads

logger = logging.getLogger(__name__)

Handle = Callable[[ConsumerRecord], object]
Partitions = frozenset[TopicPartition]

POLL_MS: Final = 100
"""The interval of checks whether a paused partition can continue or the pool must stop, in milliseconds."""
RECORDS_PER_TURN: Final = 100
"""The number of records after which a worker turns to another partition."""


class WorkerPool:
    """Runs one consumer and several workers: `WorkerPool({"group.id": "billing", ...}, ["orders"], handle,
    workers=8).run()`.

    config: the configuration of the Consumer. The pool commits processed records itself: every
    `auto.commit.interval.ms`, before a partition is revoked, and at the end. So `enable.auto.commit` must not be set.

    handle: called with each record, in a worker's thread. The first exception that it raises ends the pool.

    waiting_max: the number of records of a partition that may wait for a worker. Beyond it, the partition is paused."""

    def __init__(
        self,
        config: Mapping[str, Any],
        topics: Iterable[str],
        handle: Handle,
        *,
        workers: int,
        waiting_max: int = 1_000,
    ) -> None:
        require_at_least_one("workers", workers)
        require_at_least_one("waiting_max", waiting_max)
        self._given = manual_commits(config)
        self._config = ConsumerConfig.parse(self._given)
        self._topics = list(topics)
        self._handle = handle
        self._worker_count = workers
        self._waiting_max = waiting_max
        self._ledger = WorkLedger()
        self._lock = threading.RLock()
        """Guards the ledger and the fields below."""
        self._has_work = threading.Condition(self._lock)
        """The workers wait for it. Python runs signal handlers in the main thread only, so none interrupts it."""
        self._givers = WaitingThreads()
        """The polling thread waits here until workers have finished records."""
        self._is_stopping = False
        self._failure: Exception | None = None
        self._last_commit_s = time.monotonic()

    def run(self) -> None:
        """Polls in this thread until `stop`, or until `handle` raises an exception, which this raises too. May be
        called only once."""
        workers = [
            threading.Thread(target=self._work, name=f"klamm-worker-{number}") for number in range(self._worker_count)
        ]
        for worker in workers:
            worker.start()
        try:
            with Consumer(self._given) as consumer:
                consumer.subscribe(self._topics, listener=_Listener(self, consumer))
                try:
                    while not self._is_stopping:
                        self._poll_once(consumer)
                finally:
                    self.stop()
                    for worker in workers:
                        worker.join()
                    self._commit(consumer, self._ledger.assigned())
        finally:
            self.stop()
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Ends `run` after the workers have finished their current records. Any thread or signal handler may call
        this.
        """
        self._is_stopping = True
        if self._lock.acquire(blocking=False):
            # If another thread holds the lock, that thread sees the flag later, at the latest after POLL_MS.
            self._has_work.notify_all()
            self._lock.release()

    # The polling thread

    def _poll_once(self, consumer: Consumer) -> None:
        for tp, records in consumer.poll(POLL_MS).items():
            with self._lock:
                self._ledger.add(tp, records)
                self._has_work.notify_all()
        self._pause_and_resume(consumer)
        if time.monotonic() >= self._last_commit_s + self._config.auto_commit_interval_ms / 1000:
            self._last_commit_s = time.monotonic()
            self._commit_async(consumer)

    def _pause_and_resume(self, consumer: Consumer) -> None:
        paused = consumer.paused()
        with self._lock:
            counts = {tp: self._ledger.waiting_count(tp) for tp in consumer.assignment()}
        full = [tp for tp, count in counts.items() if count >= self._waiting_max and tp not in paused]
        drained = [tp for tp in paused if counts.get(tp, 0) <= self._waiting_max // 2]
        consumer.pause(*full)
        consumer.resume(*drained)

    def _commit_async(self, consumer: Consumer) -> None:
        with self._lock:
            offsets = self._ledger.to_commit()
        if offsets:
            consumer.commit_async(offsets, self._on_committed)

    def _on_committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], error: Exception | None) -> None:
        if error is not None:
            logger.warning("could not commit, retrying: %s", error)
            return
        with self._lock:
            self._ledger.note_committed(dict(offsets))

    def _commit(self, consumer: Consumer, partitions: Iterable[TopicPartition]) -> None:
        """Commits the processed records of partitions that are about to be revoked."""
        with self._lock:
            offsets = self._ledger.to_commit(partitions)
        if not offsets:
            return
        try:
            consumer.commit(offsets)
        except KlammError as error:
            logger.warning("could not commit, the next owner will process some records again: %s", error)

    def give_up(self, consumer: Consumer, partitions: Partitions, *, commit: bool) -> None:
        """Takes revoked partitions from the workers. Waits for the records that workers are processing, and commits, so
        that the next owner begins after them.

        Waits for half of `max.poll.interval.ms` at most. The next owner processes unfinished records again."""
        with self._lock:
            self._ledger.give_up(partitions)
        if commit:
            timeout_s = self._config.max_poll_interval_ms / 2000
            if not self._givers.wait_for(lambda: self._are_idle(partitions), timeout_s):
                logger.warning("released partitions with records under way: %s", self._ledger.busy(partitions))
            self._commit(consumer, partitions)
        with self._lock:
            self._ledger.forget(partitions)

    def _are_idle(self, partitions: Partitions) -> bool | None:
        with self._lock:
            return None if self._ledger.busy(partitions) else True

    # The workers

    def _work(self) -> None:
        while (work := self._wait_for_work()) is not None:
            try:
                self._process(work)
            except Exception as error:
                logger.exception("a record of %s failed", work.tp)
                self._failure = self._failure or error
                self.stop()
            finally:
                with self._lock:
                    self._ledger.release(work)
                    self._has_work.notify_all()
                self._givers.wake_all()

    def _wait_for_work(self) -> PartitionWork | None:
        with self._lock:
            while not self._is_stopping:
                work = self._ledger.take()
                if work is not None:
                    return work
                self._has_work.wait(POLL_MS / 1000)
        return None

    def _process(self, work: PartitionWork) -> None:
        for _ in range(RECORDS_PER_TURN):
            with self._lock:
                record = None if self._is_stopping else self._ledger.next_record(work)
            if record is None:
                return
            self._handle(record)
            with self._lock:
                self._ledger.note_done(work, record)


class _Listener:
    """The rebalance listener of the pool. It runs in the polling thread, within a poll."""

    def __init__(self, pool: WorkerPool, consumer: Consumer) -> None:
        self._pool = pool
        self._consumer = consumer

    def on_partitions_revoked(self, partitions: Partitions) -> None:
        self._pool.give_up(self._consumer, partitions, commit=True)

    def on_partitions_lost(self, partitions: Partitions) -> None:
        self._pool.give_up(self._consumer, partitions, commit=False)

    def on_partitions_assigned(self, partitions: Partitions) -> None:
        pass


def manual_commits(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the configuration of a consumer that does not commit by itself. Raises ConfigError."""
    given = dict(config)
    asked = given.pop("enable.auto.commit", given.pop("enable_auto_commit", False))
    if asked not in (False, "false"):
        raise ConfigError(f"enable.auto.commit={asked!r}: the pool commits processed records itself; leave this out")
    given["enable.auto.commit"] = False
    if ConsumerConfig.parse(given).group_id is None:
        raise ConfigError("group.id is needed: threads share the partitions of a group")
    return given


def require_at_least_one(name: str, count: int) -> None:
    """Raises ConfigError if `count` is less than one."""
    if count < 1:
        raise ConfigError(f"{name}={count}: expected at least 1")
