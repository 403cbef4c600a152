"""RabbitMQ streams with rstream (`peer_logs.Log`). `rabbitmq-server` and its stream plugin do not fsync. Records are
published in batches with asynchronous confirmations. The consumer stores no offset.

The node has a name, a port mapper (epmd), a cookie and directories of its own, none of them the machine's.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator

import psutil
from rstream import AMQPMessage, ConfirmationStatus, Consumer, MessageContext, Producer

from bench.peer_logs import OUTSTANDING, TIMEOUT_S, Pace, age_ms, program, stamped, wait_for_port
from bench.peer_servers import HOST, Peer, end
from bench.servers import free_port

GUEST = "guest"
"""User and password of a new node, from this machine only."""
FRAME_BYTES = 512 * 1024
"""The bytes of records in one publish. A frame may have twice as many."""
BATCH = 500


@contextlib.contextmanager
def start(directory: pathlib.Path) -> Iterator[Peer]:
    server, mapper = program("rabbitmq-server"), program("epmd")
    stream_port, mapper_port = free_port(), free_port()
    config = directory / "rabbitmq.conf"
    config.write_text(
        f"listeners.tcp.1 = {HOST}:{free_port()}\nstream.listeners.tcp.1 = {HOST}:{stream_port}\n"
        f"stream.advertised_host = {HOST}\nstream.advertised_port = {stream_port}\n"
    )
    (directory / "enabled_plugins").write_text("[rabbitmq_stream].\n")
    environment = {
        **os.environ,
        "HOME": str(directory),
        "ERL_EPMD_PORT": str(mapper_port),
        "RABBITMQ_NODENAME": "klamm-peers@localhost",
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_CONF_ENV_FILE": str(directory / "none"),
        "RABBITMQ_CONFIG_FILE": str(config),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "enabled_plugins"),
        "RABBITMQ_MNESIA_BASE": str(directory / "data"),
        "RABBITMQ_LOG_BASE": str(directory / "log"),
        "RABBITMQ_GENERATED_CONFIG_DIR": str(directory / "generated"),
    }
    command = [mapper, "-address", HOST, "-port", str(mapper_port)]
    with (directory / "out.log").open("wb") as log, contextlib.ExitStack() as stack:
        for each in (command, [server]):
            process = subprocess.Popen(each, env=environment, cwd=directory, stdout=log, stderr=log, text=True)
            stack.callback(end, process)
        yield Peer("rabbitmq", f"{HOST}:{stream_port}", [psutil.Process(process.pid)])


def create(address: str, log: str) -> None:
    async def run() -> None:
        async with _producer(address) as producer:
            await producer.create_stream(log)

    asyncio.run(run())


def delete(address: str, log: str) -> None:
    async def run() -> None:
        async with _producer(address) as producer:
            await producer.delete_stream(log)

    asyncio.run(run())


def produce(address: str, log: str, size_bytes: int, count: int) -> float:
    async def run() -> float:
        value = bytes(size_bytes)
        batch = max(1, min(BATCH, FRAME_BYTES // size_bytes))
        window = _Window()
        async with _producer(address) as producer:
            await producer.send_wait(log, b"")
            started = time.perf_counter()
            for sent in range(0, count, batch):
                await window.send(producer, log, [value] * min(batch, count - sent))
            await window.wait_for_room(OUTSTANDING)
            return time.perf_counter() - started

    return asyncio.run(run())


def produce_singly(address: str, log: str, size_bytes: int, seconds: float) -> float:
    async def run() -> float:
        value = bytes(size_bytes)
        async with _producer(address) as producer:
            await producer.send_wait(log, b"")
            count, started = 0, time.perf_counter()
            while time.perf_counter() - started < seconds:
                await producer.send_wait(log, value)
                count += 1
            return count / (time.perf_counter() - started)

    return asyncio.run(run())


def consume(address: str, log: str, count: int) -> float:
    async def run() -> float:
        moments: list[float] = []
        # And the one that the producer warmed up with.
        await _read(address, log, count + 1, lambda _: moments.append(time.perf_counter()))
        return moments[-1] - moments[0]

    return asyncio.run(run())


def produce_at(address: str, log: str, rate: int, count: int) -> None:
    async def run() -> None:
        window = _Window()
        async with _producer(address) as producer:
            pace, sent = Pace(rate), 0
            while sent < count:
                if (wait_s := pace.wait_s(sent)) > 0:
                    await asyncio.sleep(wait_s)
                due = min(pace.due(), count) - sent
                await window.send(producer, log, [stamped() for _ in range(due)])
                sent += due
            await window.wait_for_room(OUTSTANDING)

    asyncio.run(run())


def receive(address: str, log: str, count: int) -> list[float]:
    async def run() -> list[float]:
        found: list[float] = []
        await _read(address, log, count, lambda record: found.append(age_ms(record, time.monotonic_ns())))
        return found

    return asyncio.run(run())


def first_produce(address: str, log: str, retry_s: float) -> float:
    async def run() -> float:
        async with _producer(address) as producer:
            await producer.create_stream(log)
            await producer.send_wait(log, b"first")
            return time.monotonic()

    wait_for_port(address, retry_s)
    return asyncio.run(run())


class _Window:
    """Bounds how many records wait for their confirmation."""

    def __init__(self) -> None:
        self._outstanding = 0
        self._refused: ConfirmationStatus | None = None
        self._changed = asyncio.Event()

    async def send(self, producer: Producer, log: str, values: list[bytes]) -> None:
        """Waits for room, if there is none for them."""
        await self.wait_for_room(len(values))
        self._outstanding += len(values)
        await producer.send_batch(log, values, on_publish_confirm=self._on_confirmation)

    async def wait_for_room(self, count: int) -> None:
        """Waits until there is room for `count` records. Raises TimeoutError, or RuntimeError when the server refused a
        record."""
        while self._outstanding + count > OUTSTANDING:
            self._changed.clear()
            await asyncio.wait_for(self._changed.wait(), TIMEOUT_S)
            if self._refused:
                raise RuntimeError(f"not confirmed: {self._refused}")

    def _on_confirmation(self, status: ConfirmationStatus) -> None:
        self._outstanding -= 1
        if not status.is_confirmed:
            self._refused = status
        self._changed.set()


async def _read(address: str, log: str, count: int, take: Callable[[bytes], None]) -> None:
    """Reads from the beginning until `count` records came."""
    left, done = count, asyncio.Event()

    def on_record(record: bytes | AMQPMessage, _: MessageContext) -> None:
        nonlocal left
        take(bytes(record))
        left -= 1
        if not left:
            done.set()

    host, port = _split(address)
    async with Consumer(host, port, username=GUEST, password=GUEST) as consumer:
        await consumer.subscribe(log, on_record)
        await asyncio.wait_for(done.wait(), TIMEOUT_S)


@contextlib.asynccontextmanager
async def _producer(address: str) -> AsyncIterator[Producer]:
    host, port = _split(address)
    async with Producer(host, port, username=GUEST, password=GUEST) as producer:
        yield producer


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.partition(":")
    return host, int(port)
