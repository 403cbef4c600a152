"""`format("klamm")` beside Spark's own Kafka connector, on the same `klamm up` and in the same Spark, in turns.

Run: python bench/spark.py [--only source,sink,latency] [--bytes 100 1024] [--pairs 3]

Spark's connector talks to the Kafka listener, and comes by name from Maven as in tests/clients. Both read the same
topic into a noop sink, and write the same generated rows with acks=all and their shipped settings; the pairs alternate
in who begins, and a first run of each warms both up. Figures are medians; a ratio is Klamm's by the connector's, so
more than 1 is better for throughput and less than 1 for CPU and latency. CPU is that of Spark with its Python workers
and of the cluster together.
"""

from __future__ import annotations

import argparse
import contextlib
import pathlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import psutil

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))

import java_programs  # noqa: E402 - Spark's connector, fetched by Maven
from klamm_process import running_cluster  # noqa: E402

from klamm import Admin, NewTopic, Producer  # noqa: E402

PARTITIONS = 4
CORES = 2
BYTES_PER_RUN = {100: 60_000_000, 1024: 400_000_000}
KEY_BYTES = 8
LATENCY_ROWS = 60
LATENCY_PAUSE_S = 0.25
Figures = dict[str, float]


@dataclass(frozen=True)
class Side:
    """One of the two connectors."""

    format: str
    bootstrap: str

    @property
    def options(self) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.bootstrap}


@dataclass(frozen=True)
class Bench:
    """What is measured, and on what."""

    spark: Any
    admin: Admin
    cluster: psutil.Process

    def create(self, name: str, partitions: int = PARTITIONS) -> str:
        self.admin.create_topics([NewTopic(name, partition_count=partitions)])
        return name

    def cpu_s(self) -> float:
        """Of the cluster, and of Spark with its workers."""
        here = psutil.Process()
        total = 0.0
        for process in (self.cluster, *here.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                total += times.user + times.system
        return total


@contextlib.contextmanager
def running_bench() -> Iterator[tuple[Bench, tuple[Side, Side]]]:
    from pyspark_klamm.local import local_session

    jars = ",".join(map(str, java_programs.spark_jars()))
    with (
        tempfile.TemporaryDirectory(prefix="klamm-bench-") as scratch,
        running_cluster(pathlib.Path(scratch), {"log.level": "WARNING"}) as cluster,
    ):
        spark = local_session("bench", cores=CORES, settings={"spark.jars": jars, "spark.driver.memory": "2g"})
        spark.sparkContext.setLogLevel("ERROR")
        try:
            with Admin(bootstrap_servers=cluster.bootstrap) as admin:
                sides = (Side("klamm", cluster.bootstrap), Side("kafka", cluster.kafka_bootstrap))
                yield Bench(spark, admin, psutil.Process(cluster.pid)), sides
        finally:
            spark.stop()


def rows(spark: Any, count: int, size_bytes: int) -> Any:
    """`key`, `value`: eight digits, and as many bytes as said that differ from row to row."""
    number = f"lpad(cast(id as string), {KEY_BYTES}, '0')"
    value = f"cast(concat({number}, repeat('x', {size_bytes - KEY_BYTES})) as binary)"
    return spark.range(count, numPartitions=CORES).selectExpr(f"cast({number} as binary) key", f"{value} value")


def fill(bench: Bench, side: Side, topic: str, count: int, size_bytes: int) -> None:
    rows(bench.spark, count, size_bytes).write.format(side.format).options(**side.options, topic=topic).mode(
        "append"
    ).save()


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

    for columns in ("all", "value"):
        report(
            f"source, {size_bytes} B, {columns} columns",
            in_turns(sides, pairs, lambda side, c=columns: timed(bench, count, size_bytes, read(side, c))),
        )
    bench.admin.delete_topics([topic])


def measure_sink(bench: Bench, sides: tuple[Side, Side], size_bytes: int, pairs: int) -> None:
    count = BYTES_PER_RUN[size_bytes] // size_bytes // 2

    def write(side: Side, keyed: bool, **options: str) -> Figures:
        topic = bench.create(f"sink-{time.monotonic_ns()}")
        frame = rows(bench.spark, count, size_bytes)
        frame = frame if keyed else frame.select("value")
        writer = frame.write.format(side.format).options(**side.options, topic=topic, **options).mode("append")
        figures = timed(bench, count, size_bytes, writer.save)
        bench.admin.delete_topics([topic])
        return figures

    for keyed in (True, False):
        what = f"sink, {size_bytes} B, {'key and value' if keyed else 'value'}"
        report(what, in_turns(sides, pairs, lambda side, k=keyed: write(side, k)))

    def write_once(side: Side) -> Figures:
        return write(side, True, **({"deliveryGuarantee": "exactly-once"} if side.format == "klamm" else {}))

    report(
        f"sink, {size_bytes} B, key and value, exactly once beside at least once", in_turns(sides, pairs, write_once)
    )


def measure_latency(bench: Bench, sides: tuple[Side, Side], pairs: int) -> None:
    """One record at a time through a query from topic to topic: from `send` until it is written, and what a
    micro-batch took."""

    def run(side: Side, **options: str) -> Figures:
        source, target = (bench.create(f"{name}-{time.monotonic_ns()}", 1) for name in ("in", "out"))
        with tempfile.TemporaryDirectory(prefix="klamm-checkpoint-") as checkpoint:
            frame = bench.spark.readStream.format(side.format).options(
                **side.options, subscribe=source, startingOffsets="earliest"
            )
            query = (
                frame.load()
                .select("value")
                .writeStream.format(side.format)
                .options(**side.options, topic=target, checkpointLocation=checkpoint, **options)
                .start()
            )
            try:
                waits_ms = list(waited_ms(bench, sides[0].bootstrap, source, target))
                took_ms = [each.durationMs["triggerExecution"] for each in query.recentProgress if each.numInputRows]
            finally:
                query.stop()
        return {"record, ms": statistics.median(waits_ms[10:]), "micro-batch, ms": statistics.median(took_ms[10:])}

    report("latency, at least once", in_turns(sides, pairs, run))

    def run_once(side: Side) -> Figures:
        return run(side, **({"deliveryGuarantee": "exactly-once"} if side.format == "klamm" else {}))

    report("latency, exactly once beside at least once", in_turns(sides, pairs, run_once))


def waited_ms(bench: Bench, bootstrap: str, source: str, target: str) -> Iterator[float]:
    """From the send of each record until a read_committed consumer has it."""
    from klamm import Consumer, TopicPartition

    with (
        Producer(bootstrap_servers=bootstrap, linger_ms=0) as producer,
        Consumer(bootstrap_servers=bootstrap, enable_auto_commit=False, isolation_level="read_committed") as consumer,
    ):
        consumer.assign([TopicPartition(target, 0)])
        consumer.seek_to_beginning()
        for number in range(LATENCY_ROWS):
            started_s = time.perf_counter()
            producer.send(source, b"%d" % number).result()
            while not consumer.poll(timeout_ms=1_000):
                assert time.perf_counter() - started_s < 60, f"record {number} did not arrive"
            yield (time.perf_counter() - started_s) * 1000
            time.sleep(LATENCY_PAUSE_S)


def in_turns(sides: tuple[Side, Side], pairs: int, measure: Callable[[Side], Figures]) -> dict[str, list[Figures]]:
    """Every run of each, after one of both that does not count."""
    runs: dict[str, list[Figures]] = {side.format: [] for side in sides}
    for number in range(-1, pairs):
        for side in sides if number % 2 == 0 else sides[::-1]:
            figures = measure(side)
            if number >= 0:
                runs[side.format].append(figures)
    return runs


def report(what: str, runs: dict[str, list[Figures]]) -> None:
    for name in runs["klamm"][0]:
        ours, theirs = ([run[name] for run in runs[side]] for side in ("klamm", "kafka"))
        medians = [statistics.median(each) for each in (ours, theirs)]
        shown = (
            f"{median:,.4g} ({min(each):,.4g} to {max(each):,.4g})"
            for median, each in zip(medians, (ours, theirs), strict=True)
        )
        print(f"| {what} | {name} | {' | '.join(shown)} | {medians[0] / medians[1]:.2f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="source,sink,latency")
    parser.add_argument("--bytes", type=int, nargs="+", default=[100, 1_024], choices=sorted(BYTES_PER_RUN))
    parser.add_argument("--pairs", type=int, default=3)
    options = parser.parse_args()
    with running_bench() as (bench, sides):
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
