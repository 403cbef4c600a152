"""Measures the time from `send` to the record in the hands of a consumer, in one process."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final

from klamm import Consumer, Producer
from klamm.errors import KlammError
from klamm_cli.perf.clients import open_consumer, open_producer
from klamm_cli.perf.latencies import Latencies
from klamm_cli.perf.load import Load
from klamm_cli.perf.matrix import Cell
from klamm_cli.perf.measurement import Measurement
from klamm_cli.perf.producing import Probes, ticks
from klamm_cli.perf.sample import Sample

_HEADER: Final = "klamm-perf-sent"
_STAMP_BYTES: Final = 8
_POLL_MS: Final = 100
_SILENCE_S: Final = 30.0


def measure_end_to_end(
    producer_settings: Mapping[str, object],
    consumer_settings: Mapping[str, object],
    topic: str,
    partitions: int,
    cell: Cell,
    sample: Sample,
    load: Load,
) -> Measurement:
    """Sends the load in a thread, receives it in this one, and returns the figures.

    Each record has one header more than the sample, with the time at which it was sent. Raises KlammError if no more
    records arrive for 30 seconds, and the error of a record that was refused."""
    stop = threading.Event()
    with (
        open_consumer(consumer_settings, topic, partitions) as consumer,
        open_producer({**producer_settings, **cell.producer_settings}) as producer,
    ):
        _connect(producer, consumer, topic, sample)
        stored_bytes = producer.metrics()["byte-total"]
        began_s = time.perf_counter()
        with _in_a_thread(stop, _send_load, producer, topic, sample, load, stop) as sent:
            latencies, count = _receive(consumer, topic, sent)
        seconds = time.perf_counter() - began_s
        stored_bytes = producer.metrics()["byte-total"] - stored_bytes
    return Measurement(
        cell=cell,
        records=count,
        size_bytes=sample.size_bytes(count),
        stored_bytes=round(stored_bytes),
        seconds=seconds,
        p50_ms=latencies.percentile_ms(50),
        p99_ms=latencies.percentile_ms(99),
    )


@contextmanager
def _in_a_thread(stop: threading.Event, function: Any, *arguments: Any) -> Iterator[Future[int]]:
    """Yields the result of the function, which runs in a thread. Sets `stop` at the end, and waits for the thread."""
    with ThreadPoolExecutor(1, thread_name_prefix="klamm-perf") as thread:
        try:
            yield thread.submit(function, *arguments)
        finally:
            stop.set()


def _connect(producer: Producer[Any, Any], consumer: Consumer[Any, Any], topic: str, sample: Sample) -> None:
    """Sends one record and receives it. The first record waits for connections and metadata."""
    first = sample.records[0]
    producer.send(topic, first.value, first.key, headers=_stamped(first.headers)).result()
    _receive(consumer, topic, _done(1))


def _done(count: int) -> Future[int]:
    future: Future[int] = Future()
    future.set_result(count)
    return future


def _stamped(headers: tuple[tuple[str, bytes | None], ...]) -> tuple[tuple[str, bytes | None], ...]:
    return (*headers, (_HEADER, time.perf_counter_ns().to_bytes(_STAMP_BYTES)))


def _send_load(producer: Producer[Any, Any], topic: str, sample: Sample, load: Load, stop: threading.Event) -> int:
    """Sends the load with the time of each record, and returns the number of records."""
    records = itertools.cycle(sample.records)
    probes = Probes()
    sent = 0
    for due in ticks(load):
        for key, value, headers in itertools.islice(records, due):
            producer.send(topic, value, key, headers=_stamped(headers), on_delivery=probes.start())
        sent += due
        if stop.is_set() or probes.error is not None:
            break
    if not stop.is_set():
        producer.flush()
    if probes.error is not None:
        raise probes.error
    return sent


def _receive(consumer: Consumer[Any, Any], topic: str, sent: Future[int]) -> tuple[Latencies, int]:
    """Receives records until there are as many as were sent. Returns their latencies and their number."""
    latencies, count = Latencies(), 0
    heard_s = time.perf_counter()
    while not sent.done() or count < sent.result():
        polled = consumer.poll(timeout_ms=_POLL_MS)
        now_ns = time.perf_counter_ns()
        for record in itertools.chain.from_iterable(polled.values()):
            count += 1
            latencies.add((now_ns - int.from_bytes(record.headers[-1][1] or b"")) / 1e9)
        if polled:
            heard_s = now_ns / 1e9
        elif now_ns / 1e9 - heard_s > _SILENCE_S:
            raise KlammError(f"received {count} records of {topic}, and no more for {_SILENCE_S:.0f} s")
    return latencies, count
