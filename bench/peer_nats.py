"""NATS JetStream with nats-py (`peer_logs.Log`). Its stream is on files, which `nats-server` fsyncs every two minutes
by default. Publishes are asynchronous. The consumer is an ordered one, which acknowledges nothing."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator

import nats
import psutil
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import PubAck, StorageType, StreamConfig

from bench.peer_logs import OUTSTANDING, TIMEOUT_S, Pace, age_ms, program, stamped, wait_for_port
from bench.peer_servers import HOST, Peer, end
from bench.servers import free_port

LIMIT_BYTES = 2**30
"""The maximum bytes of records that a consumer has received and not handed out. More are dropped. A run has fewer."""


@contextlib.contextmanager
def start(directory: pathlib.Path) -> Iterator[Peer]:
    port = free_port()
    command = [
        program("nats-server"),
        "--addr",
        HOST,
        "--port",
        str(port),
        "--jetstream",
        "--store_dir",
        str(directory),
    ]
    with (directory / "nats.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, text=True)
    try:
        yield Peer("nats", f"{HOST}:{port}", [psutil.Process(process.pid)])
    finally:
        end(process)


def create(address: str, log: str) -> None:
    async def run() -> None:
        async with _connected(address) as stream:
            await _add_stream(stream, log)

    asyncio.run(run())


def delete(address: str, log: str) -> None:
    async def run() -> None:
        async with _connected(address) as stream:
            await stream.delete_stream(log)

    asyncio.run(run())


def produce(address: str, log: str, size_bytes: int, count: int) -> float:
    async def run() -> float:
        value = bytes(size_bytes)
        async with _connected(address) as stream:
            started = time.perf_counter()
            sent = [await stream.publish_async(log, value) for _ in range(count)]
            await asyncio.wait_for(stream.publish_async_completed(), TIMEOUT_S)
            took_s = time.perf_counter() - started
            _check(sent)
            return took_s

    return asyncio.run(run())


def produce_singly(address: str, log: str, size_bytes: int, seconds: float) -> float:
    async def run() -> float:
        value = bytes(size_bytes)
        async with _connected(address) as stream:
            count, started = 0, time.perf_counter()
            while time.perf_counter() - started < seconds:
                await stream.publish(log, value)
                count += 1
            return count / (time.perf_counter() - started)

    return asyncio.run(run())


def consume(address: str, log: str, count: int) -> float:
    async def run() -> float:
        moments: list[float] = []
        await _read(address, log, count, lambda _: moments.append(time.perf_counter()))
        return moments[-1] - moments[0]

    return asyncio.run(run())


def produce_at(address: str, log: str, rate: int, count: int) -> None:
    async def run() -> None:
        async with _connected(address) as stream:
            sent, pace = [], Pace(rate)
            for number in range(count):
                if (wait_s := pace.wait_s(number)) > 0:
                    await asyncio.sleep(wait_s)
                sent.append(await stream.publish_async(log, stamped()))
            await asyncio.wait_for(stream.publish_async_completed(), TIMEOUT_S)
            _check(sent)

    asyncio.run(run())


def receive(address: str, log: str, count: int) -> list[float]:
    async def run() -> list[float]:
        found: list[float] = []
        await _read(address, log, count, lambda record: found.append(age_ms(record, time.monotonic_ns())))
        return found

    return asyncio.run(run())


def first_produce(address: str, log: str, retry_s: float) -> float:
    async def run() -> float:
        async with _connected(address) as stream:
            await _add_stream(stream, log)
            await stream.publish(log, b"first")
            return time.monotonic()

    wait_for_port(address, retry_s)
    return asyncio.run(run())


@contextlib.asynccontextmanager
async def _connected(address: str) -> AsyncIterator[JetStreamContext]:
    connection = await nats.connect(f"nats://{address}", allow_reconnect=False)
    try:
        yield connection.jetstream(publish_async_max_pending=OUTSTANDING)
    finally:
        await connection.close()


async def _add_stream(stream: JetStreamContext, log: str) -> None:
    await stream.add_stream(StreamConfig(name=log, subjects=[log], storage=StorageType.FILE))


async def _read(address: str, log: str, count: int, take: Callable[[bytes], None]) -> None:
    """Reads from the beginning until `count` records came."""
    left, done = count, asyncio.Event()

    async def on_message(message: Msg) -> None:
        nonlocal left
        take(message.data)
        left -= 1
        if not left:
            done.set()

    async with _connected(address) as stream:
        await stream.subscribe(
            log,
            cb=on_message,
            ordered_consumer=True,
            pending_msgs_limit=LIMIT_BYTES,
            pending_bytes_limit=LIMIT_BYTES,
        )
        await asyncio.wait_for(done.wait(), TIMEOUT_S)


def _check(sent: list[asyncio.Future[PubAck]]) -> None:
    """Raises the first refusal, if there is one."""
    for one in sent:
        one.result()
