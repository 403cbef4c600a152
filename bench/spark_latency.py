"""What a micro-batch of `bench/spark.py` takes, and a record through it."""

from __future__ import annotations

import contextlib
import functools
import statistics
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from bench.spark_sides import Bench, Figures, Side, exactly_once, in_turns, report
from klamm import Consumer, Producer, TopicPartition

BATCHES = 60
WARM_UP_BATCHES = 15
BATCHES_TIMEOUT_S = 300
LATENCY_PAUSE_S = 0.25


def measure_latency(bench: Bench, sides: tuple[Side, Side], pairs: int) -> None:
    topic = bench.create(f"latency-{time.monotonic_ns()}", 1)
    with Producer(bootstrap_servers=sides[0].bootstrap) as producer:
        for number in range(BATCHES):
            producer.send(topic, b"%d" % number)

    def from_source(side: Side) -> Figures:
        reader = bench.spark.readStream.format(side.format).options(**side.options, subscribe=topic)
        reader = reader.options(startingOffsets="earliest", maxOffsetsPerTrigger=1)
        return timed_batches(bench, reader.load().select("value").writeStream.format("noop"))

    def to_sink(side: Side, **options: str) -> Figures:
        frame = bench.spark.readStream.format("rate-micro-batch").options(rowsPerBatch=1, numPartitions=1).load()
        return timed_batches(bench, writer(bench, side, frame.selectExpr("cast(value as string) value"), **options))

    def through(side: Side, **options: str) -> Figures:
        source = bench.create(f"in-{time.monotonic_ns()}", 1)
        target = bench.create(f"out-{time.monotonic_ns()}", 1)
        reader = bench.spark.readStream.format(side.format).options(**side.options, subscribe=source)
        frame = reader.option("startingOffsets", "earliest").load().select("value")
        with running(writer(bench, side, frame, topic=target, **options)) as query:
            waits_ms = list(waited_ms(sides[0].bootstrap, source, target))
            took_ms = [each.durationMs["triggerExecution"] for each in query.recentProgress if each.numInputRows]
        kept = slice(WARM_UP_BATCHES, None)
        return {"record, ms": statistics.median(waits_ms[kept]), "micro-batch, ms": statistics.median(took_ms[kept])}

    report("latency, source", in_turns(sides, pairs, from_source))
    for what, measure in (("sink", to_sink), ("topic to topic", through)):
        report(f"latency, {what}, at least once", in_turns(sides, pairs, measure))
        once = functools.partial(exactly_once, measure)
        report(f"latency, {what}, exactly once beside at least once", in_turns(sides, pairs, once))


def writer(bench: Bench, side: Side, frame: Any, **options: str) -> Any:
    """The writer of a stream to a topic, its own if none is named."""
    target = options.pop("topic", None) or bench.create(f"out-{time.monotonic_ns()}", 1)
    return frame.writeStream.format(side.format).options(**side.options, topic=target, **options)


@contextlib.contextmanager
def running(writer: Any) -> Iterator[Any]:
    """Yields the started query, with a checkpoint of its own."""
    with tempfile.TemporaryDirectory(prefix="klamm-checkpoint-") as checkpoint:
        query = writer.option("checkpointLocation", checkpoint).start()
        try:
            yield query
        finally:
            query.stop()


def timed_batches(bench: Bench, writer: Any) -> Figures:
    """Micro-batches of one record each, one after the other, when the first ones are over."""
    with running(writer) as query:
        first_id = wait_for_batch(query, WARM_UP_BATCHES)
        cpu_s = bench.cpu_s()
        last_id = wait_for_batch(query, BATCHES - 2)
        cpu_s = bench.cpu_s() - cpu_s
        took_ms = [
            each.durationMs["triggerExecution"]
            for each in query.recentProgress
            if first_id < each.batchId <= last_id and each.numInputRows
        ]
    return {"micro-batch, ms": statistics.median(took_ms), "CPU ms/micro-batch": cpu_s * 1000 / (last_id - first_id)}


def wait_for_batch(query: Any, batch_id: int) -> int:
    """Waits until this micro-batch has ended. Returns the id of the last one that has ended by then."""
    until_s = time.monotonic() + BATCHES_TIMEOUT_S
    while (last := query.lastProgress) is None or last.batchId < batch_id:
        assert query.isActive, query.exception()
        assert time.monotonic() < until_s, f"no micro-batch {batch_id}"
        time.sleep(0.02)
    return int(last.batchId)


def waited_ms(bootstrap: str, source: str, target: str) -> Iterator[float]:
    """Yields the time from the send of each record until a read_committed consumer receives it, in milliseconds."""
    with (
        Producer(bootstrap_servers=bootstrap, linger_ms=0) as producer,
        Consumer(bootstrap_servers=bootstrap, enable_auto_commit=False, isolation_level="read_committed") as consumer,
    ):
        consumer.assign([TopicPartition(target, 0)])
        consumer.seek_to_beginning()
        for number in range(BATCHES):
            started_s = time.perf_counter()
            producer.send(source, b"%d" % number).result()
            while not consumer.poll(timeout_ms=1_000):
                assert time.perf_counter() - started_s < 60, f"record {number} did not arrive"
            yield (time.perf_counter() - started_s) * 1000
            time.sleep(LATENCY_PAUSE_S)
