"""Measures transactions: the throughput with a commit every 100 ms and without any, and the time of a commit.

Run: python bench/transactions.py [--seconds 5] [--rounds 3] [--bytes 100] [--commits 300] [--partitions 1 12]

For throughput, one producer sends as fast as it can to one embedded cluster. It runs in turns without transactions and
with a commit every `--interval-ms`. For latency, the transactions follow each other, with one record for each
partition. `commit` is the time of `commit_transaction`. `turn` is the time of a whole transaction, in which the first
record also waits for the markers of the previous transaction. `batch` is the time of a batch ledger's decision about as
many prepared parts as there are partitions.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable

from bench.servers import Server, klamm_up
from bench.turns import rounds
from klamm import Admin, LedgerId, NewTopic, Producer

TOPIC = "bench-transactions"


def throughput(server: Server, options: argparse.Namespace, interval_ms: int | None) -> tuple[float, float, float]:
    """(records/s, CPU s of client and server per million records, commits)."""
    values = [os.urandom(options.bytes) for _ in range(100)]
    transactional_id = None if interval_ms is None else "bench"
    with Producer(bootstrap_servers=server.bootstrap, transactional_id=transactional_id) as producer:
        if interval_ms is not None:
            producer.init_transactions()
            producer.begin_transaction()
        cpu_s, start_s = time.process_time() + server.cpu_s(), time.perf_counter()
        end_s, commit_s = start_s + options.seconds, start_s + (interval_ms or 0) / 1000
        count = commits = 0
        while time.perf_counter() < end_s:
            for value in values:
                producer.send(TOPIC, value)
            count += len(values)
            if interval_ms is not None and time.perf_counter() >= commit_s:
                producer.commit_transaction()
                producer.begin_transaction()
                commits += 1
                commit_s = time.perf_counter() + interval_ms / 1000
        producer.flush()
        if interval_ms is not None:
            producer.commit_transaction()
        elapsed_s = time.perf_counter() - start_s
        cpu_s = time.process_time() + server.cpu_s() - cpu_s
    return count / elapsed_s, cpu_s / count * 1e6, commits


def commit_latency(server: Server, partition_count: int, commits: int) -> tuple[list[float], list[float]]:
    """(commits, whole transactions) in ms."""
    topic = f"{TOPIC}-{partition_count}"
    commit_ms, turn_ms = [], []
    with Producer(bootstrap_servers=server.bootstrap, transactional_id="bench-latency") as producer:
        producer.init_transactions()
        for _ in range(commits):
            begin_s = time.perf_counter()
            producer.begin_transaction()
            for number in range(partition_count):
                producer.send(topic, b"value", partition=number)
            producer.flush()
            flushed_s = time.perf_counter()
            producer.commit_transaction()
            end_s = time.perf_counter()
            commit_ms.append((end_s - flushed_s) * 1000)
            turn_ms.append((end_s - begin_s) * 1000)
    return commit_ms, turn_ms


def decision_latency(server: Server, admin: Admin, part_count: int, decisions: int) -> list[float]:
    """Returns how long each decision took, in milliseconds."""
    topic = f"{TOPIC}-{part_count}"
    ledger = LedgerId("bench", f"query-{part_count}")
    took_ms = []
    producers = [
        Producer(bootstrap_servers=server.bootstrap, transactional_id=ledger.part(number, 0))
        for number in range(part_count)
    ]
    for batch in range(decisions):
        admin.register_run(ledger, "run", batch)
        parts = []
        for number, producer in enumerate(producers):
            producer.init_transactions()
            producer.begin_transaction()
            producer.send(topic, b"value", partition=number)
            part = producer.prepare_transaction("run", batch)
            assert part is not None
            parts.append(part)
        start_s = time.perf_counter()
        admin.commit_batch(ledger, "run", batch, parts)
        took_ms.append((time.perf_counter() - start_s) * 1000)
    for producer in producers:
        producer.close()
    return took_ms


def spread(name: str, sample_ms: list[float]) -> str:
    ordered = sorted(sample_ms)
    p99 = ordered[min(len(ordered) - 1, round(len(ordered) * 0.99))]
    return f"{name} p50 {statistics.median(ordered):.1f} p99 {p99:.1f} ms"


def in_turns(count: int, measures: dict[str, Callable[[], tuple[float, float, float]]]) -> None:
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in measures}
    for order in rounds(list(measures), count):
        for name in order:
            found[name].append(measures[name]())
    for name, runs in found.items():
        rate, cpu_s, commits = (statistics.median(column) for column in zip(*runs, strict=True))
        print(f"{name:22} {rate:9,.0f} records/s  {cpu_s:.2f} CPU s per million records  {commits:.0f} commits")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bytes", type=int, default=100)
    parser.add_argument("--interval-ms", type=int, default=100)
    parser.add_argument("--commits", type=int, default=300)
    parser.add_argument("--partitions", type=int, nargs="+", default=[1, 12])
    options = parser.parse_args()
    with klamm_up() as server, Admin(bootstrap_servers=server.bootstrap) as admin:
        counts = {TOPIC: 4} | {f"{TOPIC}-{count}": count for count in options.partitions}
        admin.create_topics([NewTopic(name, count) for name, count in counts.items()])
        in_turns(
            options.rounds,
            {
                "no transactions": lambda: throughput(server, options, None),
                f"a commit per {options.interval_ms} ms": lambda: throughput(server, options, options.interval_ms),
            },
        )
        for count in options.partitions:
            commit_ms, turn_ms = commit_latency(server, count, options.commits)
            decision_ms = decision_latency(server, admin, count, max(1, options.commits // 10))
            print(
                f"{count:2} partitions: {spread('commit', commit_ms)}, {spread('turn', turn_ms)},"
                f" {spread('batch', decision_ms)}"
            )


if __name__ == "__main__":
    main()
