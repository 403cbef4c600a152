"""Topics whose records show whether `klamm topics spread` lost, doubled or reordered one, and the command as a process.

Record i of a topic has the key `i % keys` and the value i. So the values of a key are known, and their order.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator

from klamm import Admin, Consumer, Producer, TopicPartition
from klamm.model import LATEST_TIMESTAMP
from tests.support.klamm_process import KLAMM
from tests.support.topic_reading import read_topics
from tests.support.violation import require
from tests.support.waiting import patience, wait_until

KEYS = 97
PAUSE_S = 0.01
"""The pause of `Writing` between batches. It leaves the command and the cluster some CPU on two cores."""


def write(producer: Producer, topic: str, numbers: Iterable[int]) -> None:
    """Sends the records with these numbers, and returns when all are acknowledged."""
    for number in numbers:
        producer.send(
            topic, b"%d" % number, b"%d" % (number % KEYS), timestamp_ms=number, headers=[("n", b"%d" % number)]
        )
    producer.flush()


def fill(bootstrap: str, topic: str, start: int, end: int) -> None:
    """Sends the records from number `start` to `end`, which is exclusive."""
    with Producer(bootstrap_servers=bootstrap, linger_ms=20, batch_size=64 * 1024) as producer:
        write(producer, topic, range(start, end))


class Writing:
    """A thread that writes records to a topic, in order, until it is stopped."""

    def __init__(self, bootstrap: str, topic: str, start: int) -> None:
        self._bootstrap, self._topic = bootstrap, topic
        self.end = start
        """The number after the last acknowledged record."""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        with Producer(bootstrap_servers=self._bootstrap) as producer:
            while not self._stopped.wait(PAUSE_S):
                write(producer, self._topic, range(self.end, self.end + 50))
                self.end += 50

    def __enter__(self) -> Writing:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stopped.set()
        self._thread.join()


def check_values(by_key: dict[bytes, list[int]], count: int, *, story: str) -> None:
    """Raises Violation unless the values are those of the first `count` records, each once and in order by key."""
    for number in range(min(KEYS, count)):
        found, expected = by_key.get(b"%d" % number, []), list(range(number, count, KEYS))
        if found != expected:
            lost, doubled = len(set(expected) - set(found)), len(found) - len(set(found))
            require(False, f"{story}: key {number}: lost {lost}, doubled {doubled}, or not in order: {found[:50]}")
    require(len(by_key) == min(KEYS, count), f"{story}: {len(by_key)} keys")


def check_topic(bootstrap: str, topic: str, count: int) -> None:
    """Raises Violation unless the topic has the first `count` records, each once and in order by key.

    Also checks their timestamps and headers, and that each key is in one partition."""
    by_key, places = defaultdict[bytes, list[int]](list), defaultdict[bytes, set[int]](set)
    for record in read_topics(bootstrap, topic):
        number = int(record.value)
        by_key[record.key].append(number)
        places[record.key].add(record.partition)
        same = (record.timestamp, list(record.headers)) == (number, [("n", b"%d" % number)])
        require(same, f"record {number} of {topic} has other headers or another timestamp: {record}")
    check_values(by_key, count, story=topic)
    require(all(len(place) == 1 for place in places.values()), f"a key of {topic} is in several partitions: {places}")


def copied_offsets(admin: Admin, topic: str) -> int:
    """Returns the sum of the topic's end offsets, or 0 if it does not exist."""
    topics = admin.list_topics()
    if topic not in topics:
        return 0
    tps = [TopicPartition(topic, partition.partition) for partition in topics[topic].partitions]
    return sum(offset.offset for offset in admin.list_offsets(dict.fromkeys(tps, LATEST_TIMESTAMP)).values())


def has_boundary(admin: Admin, source: str, target: str) -> bool:
    """True if the cut is made."""
    return bool(admin.list_group_offsets(f"klamm-spread-{source}-{target}", [TopicPartition(target, 0)]))


class SpreadProcess:
    """`klamm topics spread` as a process, so that it can be killed."""

    def __init__(self, bootstrap: str, *arguments: object) -> None:
        environment = {**os.environ, "KLAMM_BOOTSTRAP": bootstrap}
        command = [*KLAMM, "topics", "spread", *map(str, arguments)]
        self._process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def kill(self) -> None:
        """Kills the process with SIGKILL, unless it has ended."""
        self._process.send_signal(signal.SIGKILL)
        self._process.communicate(timeout=patience())

    def interrupt(self) -> None:
        """Sends the signal of Ctrl-C."""
        self._process.send_signal(signal.SIGINT)

    def finish(self) -> tuple[int, str]:
        """Waits for the end of the process. Returns its exit status and its output."""
        out, _ = self._process.communicate(timeout=patience())
        return self._process.returncode, out


@contextlib.contextmanager
def spreading(bootstrap: str, *arguments: object) -> Iterator[SpreadProcess]:
    """Yields a running command, and kills it at the end unless it has ended."""
    process = SpreadProcess(bootstrap, *arguments)
    try:
        yield process
    finally:
        if not process.has_ended:
            process.kill()


def read_as_group(consumer: Consumer, by_key: dict[bytes, list[int]], count: int) -> None:
    """Polls until the consumer has returned `count` records, adds their values by key, and commits."""
    read = 0

    def poll() -> None:
        nonlocal read
        for records in consumer.poll(timeout_ms=200, max_records=min(500, max(1, count - read))).values():
            read += len(records)
            for record in records:
                by_key[record.key].append(int(record.value))

    wait_until(lambda: read >= count, lambda: f"{read} of {count} records", between=poll)
    consumer.commit()
