"""Several threads, each with a consumer of its own in one group: the partitions are shared as between processes.

Use this for work that is about as fast as polling. Each thread processes the records of a poll in order, and commits
them before it polls again. After a crash, records may be processed again, but none is skipped. The records of one poll
must not take longer than `max.poll.interval.ms`. If they may, use `WorkerPool`."""

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
    """Runs several consumers of one group: `ConsumerThreads({"group.id": "billing", ...}, ["orders"], handle,
    threads=4).run()`.

    config: the configuration of each Consumer. It must not set `enable.auto.commit`. handle: called with each record,
    in the thread of its consumer. The first exception that it raises ends all threads."""

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
        self._lock = threading.RLock()
        self._consumers: list[Consumer] = []
        self._failure: Exception | None = None

    def run(self) -> None:
        """Runs the threads until `stop`, or until `handle` raises an exception, which this raises too. May be called
        only once."""
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
        """Ends each thread after the record that it is processing. Any thread and any signal handler may call this."""
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
            return  # `stop` ended the poll
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
