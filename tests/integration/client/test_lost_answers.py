"""Tests that a producer sends a batch again if the network loses the answer, and that the broker stores it once.

A proxy between the producer and a real broker loses answers every few dozen milliseconds. It passes requests on, but no
more answers, and then closes the connection. It stands before the gRPC listener, or before the Kafka listener.
"""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import random
import threading
from collections import Counter
from collections.abc import Iterator

import pytest

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
        self.target_port = target_port
        self._rng = random.Random(SEED)
        self.is_lossy = False
        self.passed_bytes = self.swallowed_bytes = 0

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
        server, to_server = await asyncio.open_connection("127.0.0.1", self.target_port)
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
            self.passed_bytes += len(data)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()


def produce_through(tmp_path: pathlib.Path, *, idempotent: bool, by_kafka: bool) -> tuple[list[bytes], list[bytes]]:
    """Sends records through the lossy proxy, before the Kafka listener with `by_kafka`. Returns the values sent and the
    values in the log."""
    grpc, kafka = AnswerSwallower(free_port()), AnswerSwallower(free_port())
    # A client that dials another host for the Kafka listener does not use it.
    settings = {
        "listeners": f"GRPC://127.0.0.1:{grpc.target_port},KAFKA://127.0.0.1:{kafka.target_port}",
        "advertised.listeners": f"GRPC://127.0.0.1:{grpc.port},"
        f"KAFKA://{'127.0.0.1' if by_kafka else 'localhost'}:{kafka.port}",
    }
    proxy = kafka if by_kafka else grpc
    with grpc.running(), kafka.running(), running_cluster(tmp_path, settings, port=grpc.target_port):
        bootstrap = f"127.0.0.1:{grpc.port}"
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
            while by_kafka and not kafka.passed_bytes:
                sent.append(b"%06d" % len(sent) + bytes(10_000))
                producer.send(TOPIC, sent[-1], partition=0).result(patience())
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


@pytest.mark.parametrize("by_kafka", [False, True])
def test_records_that_are_retried_after_a_lost_answer_are_written_once(tmp_path: pathlib.Path, by_kafka: bool) -> None:
    sent, written = produce_through(tmp_path, idempotent=True, by_kafka=by_kafka)
    with verdict():
        assert written == sent


@pytest.mark.parametrize("by_kafka", [False, True])
def test_without_idempotence_records_retried_after_a_lost_answer_are_written_twice(
    tmp_path: pathlib.Path, by_kafka: bool
) -> None:
    sent, written = produce_through(tmp_path, idempotent=False, by_kafka=by_kafka)
    assert list(dict.fromkeys(written)) == sent
    assert max(Counter(written).values()) > 1
