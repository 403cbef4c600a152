"""Several threads, each with a consumer of its own in one group: the partitions are shared as between processes.

For work that is about as fast as polling. Each thread processes what it polled, in order, and commits it before it
polls again: after a crash records may be processed again, none is left out. The records of one poll must not take
longer than `max.poll.interval.ms`; where they may, `WorkerPool` is the better choice.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from klamm.consumer.record import ConsumerRecord
from klamm.consumer.sync_consumer import Consumer
from klamm.consumer.threads.worker_pool import manual_commits, require_at_least_one
from klamm.errors import KlammError, WakeupError
from klamm.model import TopicPartition
from klamm.offsets import OffsetAndMetadata

logger = logging.getLogger(__name__)

POLL_MS: Final = 1_000


class ConsumerThreads:
    """`ConsumerThreads({"group.id": "billing", ...}, ["orders"], handle, threads=4).run()`

    config: each Consumer's; `enable.auto.commit` must not be asked for. handle: called with each record, in the thread
    of its consumer. The first exception that it raises ends all threads."""

    def __init__(
        self,
        config: Mapping[str, Any],
        topics: Iterable[str],
        handle: Callable[[ConsumerRecord], object],
        *,
        threads: int,
    ) -> None:
        require_at_least_one("threads", threads)
        self._config = manual_commits(config)
        self._topics = list(topics)
        self._handle = handle
        self._thread_count = threads
        self._is_stopping = threading.Event()
        self._lock = threading.Lock()
        self._consumers: list[Consumer] = []
        self._failure: Exception | None = None

    def run(self) -> None:
        """Returns after `stop`, or raises what `handle` raised. Once only."""
        threads = [
            threading.Thread(target=self._consume, name=f"klamm-consumer-{number}")
            for number in range(self._thread_count)
        ]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        finally:
            self.stop()
            for thread in threads:
                thread.join()
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Ends each thread after the record that it is processing. Any thread may call this."""
        with self._lock:
            if not self._is_stopping.is_set():
                self._is_stopping.set()
                for consumer in self._consumers:
                    consumer.wakeup()

    def _consume(self) -> None:
        try:
            with Consumer(self._config) as consumer:
                with self._lock:
                    self._consumers.append(consumer)
                try:
                    consumer.subscribe(self._topics)
                    while not self._is_stopping.is_set():
                        self._poll_once(consumer)
                finally:
                    with self._lock:
                        self._consumers.remove(consumer)
        except WakeupError:
            return  # by `stop`
        except Exception as error:
            logger.exception("a consumer's thread failed")
            self._failure = self._failure or error
        finally:
            self.stop()

    def _poll_once(self, consumer: Consumer) -> None:
        done: dict[TopicPartition, OffsetAndMetadata] = {}
        try:
            for tp, records in consumer.poll(POLL_MS).items():
                for record in records:
                    if self._is_stopping.is_set():
                        return
                    self._handle(record)
                    done[tp] = OffsetAndMetadata(record.offset + 1, leader_epoch=record.leader_epoch)
        finally:
            self._commit(consumer, done)

    @staticmethod
    def _commit(consumer: Consumer, done: dict[TopicPartition, OffsetAndMetadata]) -> None:
        if not done:
            return
        try:
            try:
                consumer.commit(done)
            except WakeupError:
                consumer.commit(done)
        except KlammError as error:
            logger.warning("could not commit, some records will be processed again: %s", error)
