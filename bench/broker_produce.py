"""Measures how fast the broker accepts prepared batches over gRPC: MB/s, and its CPU seconds per GB.

    python bench/broker_produce.py [--batch-bytes 1048576] [--depth 4] [--gigabytes 1] [--runs 5] [--mode unary|stream]

Starts a controller and a broker, each a process of its own on a fresh directory. Pipelines `depth` requests of one
batch each from this process. The batches are made once, so that the figures are those of the broker, gRPC and the page
cache, without a client. Every answer is checked, and the offsets must add up to the number of records sent. Prints each
run and the medians.

On a virtual machine, a first write to memory costs several times the write itself if the host has to provide the memory
(`--cold` shows that). A broker that has run for a while has used all of its memory. By default, as much page cache as
the runs need is therefore used once, and freed again, before they start.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import psutil
import uvloop
from grpc import aio

from klamm.records.encoder import encode_batch
from klamm.wire.framed import encode_framed
from klamm.wire.v1.broker_pb2 import MetadataRequest, ProduceHeader, ProducePartition
from klamm.wire.v1.broker_rpc import BROKER
from klamm.wire.v1.controller_pb2 import CreateTopicsRequest, NewTopic
from klamm.wire.v1.controller_rpc import ADMIN
from tests.support.raw_stub import RawStub

TOPIC = "bench"
START_TIMEOUT_S = 30


class Run(NamedTuple):
    """The figures of one run."""

    mb_per_s: float
    broker_cpu_s_per_gb: float
    requests_per_s: float
    broker_cpu_us_per_request: float


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def process(module: str, settings: dict[str, str], log_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a service as a process of its own. The process is killed at the end, and its data is deleted."""
    arguments = [f"--set={name}={value}" for name, value in settings.items()]
    with log_path.open("wb") as output:
        started = subprocess.Popen([sys.executable, "-m", module, *arguments], stdout=output, stderr=output)
    try:
        yield started
    finally:
        started.kill()
        started.wait()


def use_page_cache(directory: Path, gigabytes: float) -> None:
    """Makes the machine have touched that much memory."""
    scratch = directory / "scratch"
    block = os.urandom(1 << 20)
    with scratch.open("wb") as output:
        for _ in range(int(gigabytes * 1e9 / len(block))):
            output.write(block)
    scratch.unlink()


def prepared_batch(batch_bytes: int, value_bytes: int = 1024) -> tuple[bytes, int]:
    """A batch of at most `batch_bytes`, and how many records it has."""
    value = os.urandom(value_bytes)
    count = max(1, (batch_bytes - 61) // (value_bytes + 12))
    batch = encode_batch([(1_700_000_000_000, None, value, ())] * count)
    assert len(batch) <= batch_bytes, (len(batch), batch_bytes)
    return bytes(batch), count


def request_of(batch: bytes, partition: int) -> bytes:
    part = ProducePartition(topic=TOPIC, partition=partition, records_bytes=len(batch))
    return encode_framed(ProduceHeader(acks=-1, timeout_ms=10_000, partitions=[part]), [batch])


async def produce_unary(stub: RawStub, request: bytes, count: int, depth: int) -> int:
    """Sends `count` requests, `depth` at a time, and returns the last base offset."""
    last = 0
    left = iter(range(count))

    async def worker() -> None:
        nonlocal last
        for _ in left:
            response = await stub.produce(request)
            outcome = response.partitions[0]
            assert outcome.error_code == 0, outcome
            last = max(last, outcome.base_offset)

    await asyncio.gather(*(worker() for _ in range(depth)))
    return last


async def produce_stream(stub: RawStub, request: bytes, count: int, depth: int) -> int:
    room = asyncio.Semaphore(depth)

    async def requests() -> AsyncIterator[bytes]:
        for _ in range(count):
            await room.acquire()
            yield request

    last = 0
    async for response in stub.produce_stream(requests()):
        outcome = response.partitions[0]
        assert outcome.error_code == 0, outcome
        last = outcome.base_offset
        room.release()
    return last


async def measure(stub: RawStub, broker: psutil.Process, options: argparse.Namespace) -> Run:
    batch, records = prepared_batch(options.batch_bytes)
    request = request_of(batch, 0)
    count = int(options.gigabytes * 1e9 / len(batch))
    produce = produce_unary if options.mode == "unary" else produce_stream
    first = await produce(stub, request, 1, 1)
    cpu_before, start = broker.cpu_times(), time.perf_counter()
    last = await produce(stub, request, count, options.depth)
    elapsed_s, cpu_after = time.perf_counter() - start, broker.cpu_times()
    assert last == first + count * records, (first, last, count, records)
    cpu_s = cpu_after.user + cpu_after.system - cpu_before.user - cpu_before.system
    gigabytes = count * len(batch) / 1e9
    return Run(gigabytes * 1e3 / elapsed_s, cpu_s / gigabytes, count / elapsed_s, cpu_s / count * 1e6)


async def create_topic(controller: str, broker: str) -> None:
    async with aio.insecure_channel(controller) as channel:
        create = RawStub(channel, ADMIN).create_topics
        request = CreateTopicsRequest(
            topics=[NewTopic(name=TOPIC, partition_count=1, replication_factor=1)], timeout_ms=10_000
        )
        await wait_until(lambda: create(request), lambda answer: answer.topics[0].error_code in (0, 36))
    async with aio.insecure_channel(broker) as channel:
        metadata = RawStub(channel, BROKER).metadata
        await wait_until(
            lambda: metadata(MetadataRequest(topics=[TOPIC])), lambda answer: answer.topics[0].error_code == 0
        )


async def wait_until(call: Any, is_done: Any) -> None:
    async with asyncio.timeout(START_TIMEOUT_S):
        while True:
            with contextlib.suppress(grpc.RpcError):
                if is_done(await call()):
                    return
            await asyncio.sleep(0.1)


async def bench(options: argparse.Namespace, controller: str, broker: str, broker_process: psutil.Process) -> None:
    await create_topic(controller, broker)
    async with aio.insecure_channel(broker, options=[("grpc.max_send_message_length", -1)]) as channel:
        stub = RawStub(channel, BROKER)
        runs = []
        for number in range(options.runs):
            runs.append(await measure(stub, broker_process, options))
            report(f"run {number + 1}", runs[-1])
        print(f"broker memory: {broker_process.memory_info().rss / 1e6:.0f} MB")
        report("median", Run(*(statistics.median(column) for column in zip(*runs, strict=True))))


def report(title: str, run: Run) -> None:
    print(
        f"{title:>7}: {run.mb_per_s:7.0f} MB/s  {run.broker_cpu_s_per_gb:6.2f} broker CPU s/GB"
        f"  {run.requests_per_s:7.0f} requests/s  {run.broker_cpu_us_per_request:6.0f} broker CPU us/request",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-bytes", type=int, default=1024**2)
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--mode", choices=["unary", "stream"], default="unary")
    parser.add_argument("--cold", action="store_true", help="do not use the page cache before")
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="klamm-bench-"))
    controller, broker = f"localhost:{free_port()}", f"localhost:{free_port()}"
    controller_settings = {
        "node.id": "1",
        "listeners": f"GRPC://{controller}",
        "metadata.log.dir": str(directory / "controller"),
        "log.level": "WARNING",
    }
    broker_settings = {
        "node.id": "1",
        "listeners": f"GRPC://{broker}",
        "controller.quorum.bootstrap.servers": controller,
        "log.dirs": str(directory / "broker"),
        "log.level": "WARNING",
    }
    try:
        if not options.cold:
            use_page_cache(directory, options.gigabytes * options.runs * 1.2)
        with (
            process("klamm_controller", controller_settings, directory / "controller.out"),
            process("klamm_broker", broker_settings, directory / "broker.out") as started,
        ):
            uvloop.run(bench(options, controller, broker, psutil.Process(started.pid)))
    except BaseException:
        for name in ("controller.out", "broker.out"):
            print((directory / name).read_text()[-2000:], file=sys.stderr)
        raise
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
