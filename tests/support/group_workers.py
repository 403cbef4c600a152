"""Group members that poll in threads of their own, and a record of the partitions that each of them owns according to
its listener."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator
from typing import Any

from klamm import Consumer, KlammError, Producer, TopicPartition
from tests.support.waiting import wait_until

PARTITION_COUNT = 6
FAST = {"heartbeat_interval_ms": 100, "session_timeout_ms": 20_000, "auto_offset_reset": "earliest"}
"""The settings of a member that learns about changes soon, and that a busy machine does not delay until it is
removed."""
MORTAL_MS = 3_000
"""The session.timeout.ms, or max.poll.interval.ms, of a member that a test wants to be missed."""


class Ownership:
    """The member that owns each partition, according to its listener. Two owners of one partition are recorded as a
    failure."""

    def __init__(self) -> None:
        self.owners: dict[TopicPartition, str] = {}
        self.conflicts: list[str] = []
        self._lock = threading.Lock()

    def take(self, name: str, partitions: Iterable[TopicPartition]) -> None:
        with self._lock:
            for tp in partitions:
                if self.owners.get(tp, name) != name:
                    self.conflicts.append(f"{tp} was given to {name} while {self.owners[tp]} had it")
                self.owners[tp] = name

    def give_up(self, name: str, partitions: Iterable[TopicPartition]) -> None:
        with self._lock:
            for tp in partitions:
                if self.owners.get(tp) == name:
                    del self.owners[tp]

    def shares(self) -> list[int]:
        with self._lock:
            return sorted(list(self.owners.values()).count(name) for name in set(self.owners.values()))


class Worker:
    """A group member that polls in a thread of its own, and records the partitions that it owns and the records that it
    reads."""

    def __init__(self, bootstrap: str, topic: str, ownership: Ownership, name: str, **config: Any) -> None:
        self.name = name
        self.ownership = ownership
        self.read: list[tuple[int, int]] = []
        self.revoked: list[frozenset[TopicPartition]] = []
        self.lost: list[frozenset[TopicPartition]] = []
        self.failure: Exception | None = None
        self._stopping = threading.Event()
        settings = {**FAST, "group_id": topic, "client_id": name, **config}
        self.consumer = Consumer(bootstrap_servers=bootstrap, **settings)
        self.consumer.subscribe([topic], listener=self)
        self._thread = threading.Thread(target=self._work, name=name)
        self._thread.start()

    def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        self.ownership.take(self.name, partitions)

    def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        self.revoked.append(partitions)
        self.ownership.give_up(self.name, partitions)

    def on_partitions_lost(self, partitions: frozenset[TopicPartition]) -> None:
        self.lost.append(partitions)
        self.ownership.give_up(self.name, partitions)

    def _work(self) -> None:
        try:
            while not self._stopping.is_set():
                for tp, records in self.consumer.poll(timeout_ms=50).items():
                    self.read += [(tp.partition, record.offset) for record in records]
        except KlammError as error:
            self.failure = error

    def stop_polling(self) -> None:
        self._stopping.set()
        self._thread.join()

    def close(self, **how: Any) -> None:
        self.stop_polling()
        self.consumer.close(**how)
        assert self.failure is None, self.failure

    def die(self) -> None:
        """Ends like a killed process: no leave, no commit, no further heartbeat."""
        self.stop_polling()
        core = self.consumer._core
        self.consumer._caller.run(core._stop, 1_000)
        core.closed = True
        self.ownership.give_up(self.name, list(self.ownership.owners))


@contextlib.contextmanager
def workers(*wanted: Worker) -> Iterator[None]:
    try:
        yield
    finally:
        for worker in wanted:
            worker.close()


def wait_for_shares(ownership: Ownership, *shares: int) -> None:
    wait_until(lambda: ownership.shares() == sorted(shares), lambda: f"{ownership.shares()} of {shares}")


def produce(bootstrap: str, topic: str, count: int) -> None:
    with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, partition=number % PARTITION_COUNT)


def assigned(consumer: Consumer) -> frozenset[TopicPartition]:
    """Polls until the consumer has an assignment, and returns it."""
    return wait_until(consumer.assignment, between=lambda: consumer.poll(timeout_ms=50))
