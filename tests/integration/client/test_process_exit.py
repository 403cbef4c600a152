"""Programs that end with open clients: what their last functions may still do, and what the programs print."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator

import pytest

from klamm import Admin, Consumer, NewTopic, TopicPartition
from tests.support.klamm_process import running_cluster
from tests.support.waiting import patience


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running.bootstrap


@pytest.fixture
def topic(cluster: str, request: pytest.FixtureRequest) -> str:
    name = str(request.node.name.replace("[", "-").replace("]", ""))
    with Admin(bootstrap_servers=cluster) as admin:
        admin.create_topics([NewTopic(name, partition_count=1)])
    return name


def run(program: str, cluster: str, topic: str) -> subprocess.CompletedProcess[str]:
    """Runs a program with the names BOOTSTRAP and TOPIC, and waits for its end."""
    names = f"BOOTSTRAP, TOPIC = {cluster!r}, {topic!r}\n"
    return subprocess.run(
        [sys.executable, "-c", names + textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=patience(),
        check=False,
    )


def values(cluster: str, topic: str) -> list[bytes]:
    """Returns the values of all records of the topic."""
    partition = TopicPartition(topic, 0)
    found: list[bytes] = []
    with Consumer(bootstrap_servers=cluster, auto_offset_reset="earliest") as consumer:
        consumer.assign([partition])
        end = consumer.end_offsets([partition])[partition]
        while consumer.position(partition) < end:
            found += [record.value for records in consumer.poll(1_000).values() for record in records]
    return found


LOGGING = """
    import logging
    from klamm import Producer

    class Handler(logging.Handler):
        def __init__(self):
            super().__init__()
            self.producer = Producer(bootstrap_servers=BOOTSTRAP, linger_ms=60_000)
            self.producer.send(TOPIC, b"begin")
            self.producer.flush()

        def emit(self, record):
            self.producer.send(TOPIC, self.format(record).encode())

        def close(self):
            self.producer.close()
            super().close()

    logging.getLogger("app").addHandler(Handler())
    for number in range(5):
        logging.getLogger("app").warning("event %d", number)
"""


def test_a_logging_handler_delivers_its_last_events(cluster: str, topic: str) -> None:
    """`logging.shutdown` closes the handler after all functions of atexit that were registered later."""
    ended = run(LOGGING, cluster, topic)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert values(cluster, topic) == [b"begin", *(b"event %d" % number for number in range(5))]


ATEXIT = """
    import atexit

    def send_last():
        producer.send(TOPIC, b"last").result()
        with Producer(bootstrap_servers=BOOTSTRAP) as another:
            another.send(TOPIC, b"very last")
        consumer.assign([(TOPIC, 0)])
        while consumer.position((TOPIC, 0)) < 3:
            consumer.poll(100)
        consumer.close()
        producer.close()

    atexit.register(send_last)
    from klamm import Consumer, Producer
    producer = Producer(bootstrap_servers=BOOTSTRAP)
    producer.send(TOPIC, b"first").result()
    consumer = Consumer(bootstrap_servers=BOOTSTRAP, auto_offset_reset="earliest")
"""


def test_functions_of_atexit_may_use_clients(cluster: str, topic: str) -> None:
    ended = run(ATEXIT, cluster, topic)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert values(cluster, topic) == [b"first", b"last", b"very last"]


DESTRUCTOR = """
    from klamm import Admin, Consumer, Producer

    producer = Producer(bootstrap_servers=BOOTSTRAP, linger_ms=60_000)
    future = producer.send(TOPIC, b"first")
    producer.flush()
    consumer = Consumer(bootstrap_servers=BOOTSTRAP)
    consumer.assign([(TOPIC, 0)])
    admin = Admin(bootstrap_servers=BOOTSTRAP)

    class User:
        def __init__(self, *calls):
            self.calls = calls

        def __del__(self):
            for call in self.calls:
                try:
                    call()
                except Exception as error:
                    print(type(error).__name__, str(error)[:21])

    user = User(
        lambda: producer.send(TOPIC, b"second"),
        lambda: producer.send("other", b"second"),
        producer.flush,
        producer.close,
        lambda: consumer.poll(1_000),
        consumer.close,
        admin.list_topics,
        admin.close,
        lambda: Producer(bootstrap_servers=BOOTSTRAP),
    )
    unsent = producer.send(TOPIC, b"third")
    user.calls += (unsent.result,)
    cycle = [user]
    cycle.append(cycle)
"""


def test_a_destructor_at_the_end_of_the_process_gets_errors_and_does_not_wait(cluster: str, topic: str) -> None:
    """No loop runs then, so that a call would wait for ever."""
    ended = run(DESTRUCTOR, cluster, topic)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == ["IllegalStateError the process is ending"] * 10


UNSENT = """
    import os
    from klamm import Admin, Producer

    lost = Producer(bootstrap_servers=BOOTSTRAP, linger_ms=60_000, client_id="lost")
    lost.send(TOPIC, b"sent")
    lost.flush()
    for number in range(97):
        lost.send(TOPIC, b"%d" % number)
    single = Producer(bootstrap_servers=BOOTSTRAP, linger_ms=60_000, client_id="single")
    single.send(TOPIC, b"sent", partition=0)
    flushed = Producer(bootstrap_servers=BOOTSTRAP, client_id="flushed")
    flushed.send(TOPIC, b"sent")
    flushed.flush()
    child = os.fork()
    if not child:
        try:
            Admin(bootstrap_servers=BOOTSTRAP)
        except Exception as error:
            raise SystemExit(0)
    assert os.waitpid(child, 0)[1] == 0
"""
REPORTS = [
    "Producer client.id=lost was not closed: 97 records were not acknowledged and may be lost."
    " Call flush() or close() before the program ends",
    "Producer client.id=single was not closed: 1 record was not acknowledged and may be lost."
    " Call flush() or close() before the program ends",
]


def test_records_that_are_lost_at_the_exit_are_counted_on_stderr(cluster: str, topic: str) -> None:
    ended = run(UNSENT, cluster, topic)
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr.splitlines() == REPORTS


ASYNCIO = """
    import asyncio
    from klamm import AsyncProducer

    async def send():
        producer = AsyncProducer(bootstrap_servers=BOOTSTRAP, linger_ms=60_000, client_id="lost")
        for number in range(97):
            await producer.send(TOPIC, b"%d" % number)

    asyncio.run(send())
"""


def test_records_that_are_lost_at_the_end_of_an_event_loop_are_counted_in_the_log(cluster: str, topic: str) -> None:
    ended = run(ASYNCIO, cluster, topic)
    assert ended.returncode == 0, ended.stderr
    text = "AsyncProducer client.id=lost was not closed: 97 record(s) were not acknowledged, and are lost if the event"
    assert ended.stderr == f"{text} loop ends now\n"


DAEMON = """
    import threading
    from klamm import Consumer, Producer

    def send(is_sending):
        producer = Producer(bootstrap_servers=BOOTSTRAP, linger_ms=0)
        producer.send(TOPIC, b"sent").result()
        is_sending.set()
        while True:
            producer.send(TOPIC, b"sent")

    def read(is_reading):
        consumer = Consumer(bootstrap_servers=BOOTSTRAP, auto_offset_reset="earliest")
        consumer.assign([(TOPIC, 0)])
        while True:
            if consumer.poll(100):
                is_reading.set()

    for function in (send, read):
        begun = threading.Event()
        threading.Thread(target=function, args=(begun,), daemon=True).start()
        begun.wait()
"""


def test_a_process_ends_while_its_daemon_threads_send_and_read(cluster: str, topic: str) -> None:
    for _ in range(5):
        ended = run(DAEMON, cluster, topic)
        assert ended.returncode == 0, ended.stderr
        assert re.fullmatch("(Producer client.id=klamm-producer was not closed: .*\n)?", ended.stderr)
