"""Tests that a producer sends a batch again if the network loses the answer, and that the broker stores it once.

A proxy between the producer and a real broker loses answers every few dozen milliseconds. It passes requests on, but no
more answers, and then closes the connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import random
import threading
from collections import Counter
from collections.abc import Iterator

from klamm import Admin, NewTopic, Producer, TopicPartition
from tests.support.klamm_process import running_cluster
from tests.support.ports import free_port
from tests.support.reading import read_all
from tests.support.violation import verdict
from tests.support.waiting import patience

TOPIC = "ledger"
SEED = 7
RETRIES = 20


class AnswerSwallower:
    """A TCP proxy from `port` to `target_port`, which loses answers only while `is_lossy`."""

    def __init__(self, target_port: int) -> None:
        self.port = free_port()
        self._target_port = target_port
        self._rng = random.Random(SEED)
        self.is_lossy = False
        self.swallowed_bytes = 0

    @contextlib.contextmanager
    def running(self) -> Iterator[AnswerSwallower]:
        started, loop = threading.Event(), asyncio.new_event_loop()
        stopping = asyncio.Event()

        async def serve() -> None:
            server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
            started.set()
            await stopping.wait()
            server.close()

        thread = threading.Thread(target=lambda: loop.run_until_complete(serve()), name="proxy")
        thread.start()
        assert started.wait(60)
        try:
            yield self
        finally:
            loop.call_soon_threadsafe(stopping.set)
            thread.join()
            for task in asyncio.all_tasks(loop):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    loop.run_until_complete(task)
            loop.close()

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        server, to_server = await asyncio.open_connection("127.0.0.1", self._target_port)
        answers = asyncio.create_task(self._pass_answers(server, to_client))
        requests = asyncio.create_task(_pass_on(client, to_server))
        await asyncio.wait([answers, requests], return_when=asyncio.FIRST_COMPLETED)
        for task in (answers, requests):
            task.cancel()
        for writer in (to_client, to_server):
            writer.transport.abort()

    async def _pass_answers(self, server: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        lifetime_s = self._rng.uniform(0.02, 0.1)
        loop = asyncio.get_running_loop()
        end = loop.time() + lifetime_s
        while data := await server.read(65_536):
            if self.is_lossy and loop.time() > end:
                self.swallowed_bytes += len(data)
                await asyncio.sleep(0.01)  # time for the broker to receive the bytes in flight
                return
            to_client.write(data)
            await to_client.drain()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()


def produce_through(tmp_path: pathlib.Path, *, idempotent: bool) -> tuple[list[bytes], list[bytes]]:
    """Sends records through the lossy proxy. Returns the values sent and the values in the log."""
    port = free_port()
    proxy = AnswerSwallower(port)
    settings = {"advertised.listeners": f"GRPC://127.0.0.1:{proxy.port}"}
    with proxy.running(), running_cluster(tmp_path, settings, port=port) as cluster:
        assert cluster.port == port
        bootstrap = f"127.0.0.1:{proxy.port}"
        with Admin(bootstrap_servers=bootstrap) as admin:
            admin.create_topics([NewTopic(TOPIC, partition_count=1)])
        sent: list[bytes] = []
        producer = Producer(
            bootstrap_servers=bootstrap,
            enable_idempotence=idempotent,
            linger_ms=1,
            retry_backoff_ms=1,
            retry_backoff_max_ms=10,
            reconnect_backoff_ms=1,
            reconnect_backoff_max_ms=10,
        )
        with producer:
            proxy.is_lossy = True
            while producer.metrics()["record-retry-total"] < RETRIES:
                for _ in range(20):
                    sent.append(b"%06d" % len(sent))
                    producer.send(TOPIC, sent[-1], partition=0)
                producer.flush(patience())
            proxy.is_lossy = False
        assert proxy.swallowed_bytes
        return sent, read_values(bootstrap)


def read_values(bootstrap: str) -> list[bytes]:
    return [record.value for record in read_all(bootstrap, [TopicPartition(TOPIC, 0)])]


def test_records_that_are_retried_after_a_lost_answer_are_written_once(tmp_path: pathlib.Path) -> None:
    sent, written = produce_through(tmp_path, idempotent=True)
    with verdict():
        assert written == sent


def test_without_idempotence_records_retried_after_a_lost_answer_are_written_twice(tmp_path: pathlib.Path) -> None:
    sent, written = produce_through(tmp_path, idempotent=False)
    assert list(dict.fromkeys(written)) == sent
    assert max(Counter(written).values()) > 1
