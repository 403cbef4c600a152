"""`format("klamm")` beside Spark's own Kafka connector, on the same `klamm up` and in the same Spark, in turns.

Run: python bench/spark.py [--only source,sink,latency] [--bytes 100 1024] [--pairs 3]

Spark's connector talks to the Kafka listener, and comes by name from Maven as in tests/clients. Both read the same
topic into a noop sink, and write the same generated rows with acks=all and their shipped settings; the two take turns
to begin a pair, and a first run of each warms both up. Figures are medians; a ratio is Klamm's by the connector's, so
more than 1 is better for throughput and less than 1 for CPU and latency. CPU is that of Spark with its Python workers
and of the cluster together, and is right on a machine that does other things, too.

Latency: what a micro-batch of one record takes, with the source and Spark's noop sink; with Spark's own source and the
sink; and from topic to topic, there also from the send of a record until a read_committed consumer has it.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import time
from collections.abc import Callable
from typing import Any

import pytest

from bench.spark_latency import measure_latency
from bench.spark_sides import CORES, PARTITIONS, Bench, Figures, Side, exactly_once, in_turns, report, running_bench
from klamm import Producer

BYTES_PER_RUN = {100: 60_000_000, 1024: 400_000_000}
KEY_BYTES = 8


def rows(spark: Any, count: int, size_bytes: int) -> Any:
    """`key`, `value`: eight digits, and as many bytes as said that differ from row to row."""
    number = f"lpad(cast(id as string), {KEY_BYTES}, '0')"
    value = f"cast(concat({number}, repeat('x', {size_bytes - KEY_BYTES})) as binary)"
    return spark.range(count, numPartitions=CORES).selectExpr(f"cast({number} as binary) key", f"{value} value")


def timed(bench: Bench, count: int, size_bytes: int, work: Callable[[], None]) -> Figures:
    cpu_s, started_s = bench.cpu_s(), time.perf_counter()
    work()
    took_s, cpu_s = time.perf_counter() - started_s, bench.cpu_s() - cpu_s
    return {
        "records/s": count / took_s,
        "MB/s": count * size_bytes / took_s / 1e6,
        "CPU s/M records": cpu_s / count * 1e6,
    }


def measure_source(bench: Bench, sides: tuple[Side, Side], size_bytes: int, pairs: int) -> None:
    count = BYTES_PER_RUN[size_bytes] // size_bytes
    # Batches as a producer with keys leaves them: 16 KiB, records round robin.
    topic = bench.create(f"source-{size_bytes}")
    with Producer(bootstrap_servers=sides[0].bootstrap, linger_ms=5) as producer:
        value = b"x" * (size_bytes - KEY_BYTES)
        for number in range(count):
            key = b"%08d" % number
            producer.send(topic, key + value, key=key, partition=number % PARTITIONS)

    def read(side: Side, columns: str) -> Callable[[], None]:
        reader = bench.spark.read.format(side.format).options(**side.options, subscribe=topic)
        if columns != "all" and side.format == "klamm":
            reader = reader.schema("value BINARY")
        frame = reader.load() if columns == "all" else reader.load().select("value")
        return lambda: frame.write.format("noop").mode("overwrite").save()

    def measured(columns: str) -> Callable[[Side], Figures]:
        return lambda side: timed(bench, count, size_bytes, read(side, columns))

    for columns in ("all", "value"):
        report(f"source, {size_bytes} B, {columns} columns", in_turns(sides, pairs, measured(columns)))
    bench.admin.delete_topics([topic])


def measure_sink(bench: Bench, sides: tuple[Side, Side], size_bytes: int, pairs: int) -> None:
    count = BYTES_PER_RUN[size_bytes] // size_bytes // 2

    def write(keyed: bool, side: Side, **options: str) -> Figures:
        topic = bench.create(f"sink-{time.monotonic_ns()}")
        frame = rows(bench.spark, count, size_bytes)
        frame = frame if keyed else frame.select("value")
        writer = frame.write.format(side.format).options(**side.options, topic=topic, **options).mode("append")
        figures = timed(bench, count, size_bytes, writer.save)
        bench.admin.delete_topics([topic])
        return figures

    for keyed in (True, False):
        what = f"sink, {size_bytes} B, {'key and value' if keyed else 'value'}"
        report(what, in_turns(sides, pairs, functools.partial(write, keyed)))

    what = f"sink, {size_bytes} B, key and value, exactly once beside at least once"
    report(what, in_turns(sides, pairs, functools.partial(exactly_once, functools.partial(write, True))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="source,sink,latency")
    parser.add_argument("--bytes", type=int, nargs="+", default=[100, 1_024], choices=sorted(BYTES_PER_RUN))
    parser.add_argument("--pairs", type=int, default=3)
    options = parser.parse_args()
    with contextlib.ExitStack() as running:
        try:
            bench, sides = running.enter_context(running_bench())
        except pytest.skip.Exception as missing:
            print(f"left out: {missing}")
            return
        print("| what | | format(klamm) | format(kafka) | klamm/kafka |\n|---|---|---|---|---|", flush=True)
        for size_bytes in options.bytes:
            if "source" in options.only:
                measure_source(bench, sides, size_bytes, options.pairs)
            if "sink" in options.only:
                measure_sink(bench, sides, size_bytes, options.pairs)
        if "latency" in options.only:
            measure_latency(bench, sides, options.pairs)


if __name__ == "__main__":
    main()
