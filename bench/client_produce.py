"""Throughput of `Producer.send` in a tight loop, end to end: records/s, MB/s, CPU of client and server.

Run: python bench/client_produce.py [--records 1000000] [--bytes 100] [--partitions 4] [--keys 0] [--runs 3]
     [--set compression.type=zstd ...] [--bootstrap host:port]

A run counts from the first `send` until `flush` has seen every acknowledgement (acks=all), and every future of
the last batch is checked. The server is a fresh embedded cluster on this machine's cores unless `--bootstrap`
names a running one, whose CPU then is not measured. `--keys N` sends N different keys in turn.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import resource
import statistics
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

from bench.servers import Server, klamm_up
from klamm import Admin, NewTopic, Producer

TOPIC = "bench-produce"


class Run(NamedTuple):
    """The figures of one run."""

    records_per_s: float
    mb_per_s: float
    send_cpu_us: float
    """CPU time of the sending thread, per record."""
    client_cpu_s_per_gb: float
    server_cpu_s_per_gb: float
    records_per_request: float


def client_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def measure(bootstrap: str, server: Server | None, options: argparse.Namespace) -> Run:
    values = [os.urandom(options.bytes) for _ in range(100)]
    keys: list[bytes | None] = [str(random.getrandbits(48)).encode() for _ in range(options.keys)] or [None]
    settings = dict(setting.split("=", 1) for setting in options.set)
    with Producer({"bootstrap.servers": bootstrap, **settings}) as producer:
        producer.send(TOPIC, values[0]).result()
        before = client_cpu_s(), server.cpu_s() if server else 0.0
        thread_cpu_s, start_s = time.thread_time(), time.perf_counter()
        send = producer.send
        value_count, key_count = len(values), len(keys)
        for number in range(options.records):
            last = send(TOPIC, values[number % value_count], keys[number % key_count])
        thread_cpu_s = time.thread_time() - thread_cpu_s
        producer.flush()
        elapsed_s = time.perf_counter() - start_s
        after = client_cpu_s(), server.cpu_s() if server else 0.0
        assert last.exception(0) is None
        metrics = producer.metrics()
        assert metrics["record-send-total"] == options.records + 1, metrics
        assert metrics["record-error-total"] == 0, metrics
    gigabytes = options.records * options.bytes / 1e9
    return Run(
        options.records / elapsed_s,
        gigabytes * 1e3 / elapsed_s,
        thread_cpu_s / options.records * 1e6,
        (after[0] - before[0]) / gigabytes,
        (after[1] - before[1]) / gigabytes,
        metrics["records-per-request-avg"],
    )


@contextlib.contextmanager
def target(bootstrap: str | None) -> Iterator[tuple[str, Server | None]]:
    """The named server, or one of our own."""
    if bootstrap:
        yield bootstrap, None
        return
    with klamm_up() as server:
        yield server.bootstrap, server


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--bytes", type=int, default=100, help="size of a value")
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--keys", type=int, default=0, help="how many different keys; 0: none")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a producer setting")
    parser.add_argument("--bootstrap", help="a running cluster, host:port")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")
    options = parser.parse_args()
    with target(options.bootstrap) as (bootstrap, server):
        with Admin(bootstrap_servers=bootstrap) as admin:
            admin.create_topics([NewTopic(TOPIC, partition_count=options.partitions)])
        runs = [measure(bootstrap, server, options) for _ in range(options.runs)]
    medians = Run(*(statistics.median(column) for column in zip(*runs, strict=True)))
    if options.json:
        json.dump(medians._asdict(), sys.stdout)
        return
    for run in [*runs, medians]:
        label = "median" if run is medians else "run"
        print(
            f"{label:6} {run.records_per_s:9,.0f} records/s {run.mb_per_s:7.1f} MB/s"
            f"  send {run.send_cpu_us:.2f} us CPU/record  client {run.client_cpu_s_per_gb:.1f}"
            f" server {run.server_cpu_s_per_gb:.1f} CPU s/GB  {run.records_per_request:,.0f} records/request"
        )


if __name__ == "__main__":
    main()
