"""Measures a producer that sends as fast as it can, or at a rate."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from klamm import Producer, RecordMetadata
from klamm.errors import KlammError
from klamm_cli.perf.clients import open_producer
from klamm_cli.perf.latencies import Latencies
from klamm_cli.perf.load import Load
from klamm_cli.perf.matrix import Cell
from klamm_cli.perf.measurement import Measurement
from klamm_cli.perf.sample import Sample, SampleRecord


class Probes:
    """Measures the time from `send` to the acknowledgement of some records, and keeps the first error."""

    def __init__(self) -> None:
        self.latencies = Latencies()
        self.error: Exception | None = None

    def start(self) -> Callable[[RecordMetadata | None, Exception | None], None]:
        """Returns the callback of a record that is sent now."""
        sent_s = time.perf_counter()

        def on_delivery(metadata: RecordMetadata | None, error: Exception | None) -> None:
            if error is None:
                self.latencies.add(time.perf_counter() - sent_s)
            elif self.error is None:
                self.error = error

        return on_delivery


def measure_produce(settings: Mapping[str, object], topic: str, cell: Cell, sample: Sample, load: Load) -> Measurement:
    """Sends the load, and returns the figures from the first `send` to the last acknowledgement. Raises the error of a
    record that was refused."""
    probes = Probes()
    with open_producer({**settings, **cell.producer_settings}) as producer:
        # The first record waits for connections and metadata.
        send(producer, topic, sample.records[0]).result()
        stored_bytes = producer.metrics()["byte-total"]
        began_s = time.perf_counter()
        count = _send_load(producer, topic, sample, load, probes)
        producer.flush()
        seconds = time.perf_counter() - began_s
        metrics = producer.metrics()
        if probes.error is not None:
            raise probes.error
        if metrics["record-error-total"]:
            raise KlammError(f"{topic} refused {metrics['record-error-total']:.0f} of {count} records")
    return Measurement(
        cell=cell,
        records=count,
        size_bytes=sample.size_bytes(count),
        stored_bytes=round(metrics["byte-total"] - stored_bytes),
        seconds=seconds,
        p50_ms=probes.latencies.percentile_ms(50),
        p99_ms=probes.latencies.percentile_ms(99),
    )


def send(producer: Producer[Any, Any], topic: str, record: SampleRecord) -> Any:
    """Sends one record, and returns its future."""
    return producer.send(topic, record.value, record.key, headers=record.headers)


def _send_load(producer: Producer[Any, Any], topic: str, sample: Sample, load: Load, probes: Probes) -> int:
    """Sends the load, and returns the number of records. Stops early if a record is refused."""
    records = itertools.cycle(sample.records)
    bare_send = producer.send
    sent = 0
    for due in ticks(load):
        for key, value, headers in itertools.islice(records, due - 1):
            bare_send(topic, value, key, headers=headers)
        key, value, headers = next(records)
        bare_send(topic, value, key, headers=headers, on_delivery=probes.start())
        sent += due
        if probes.error is not None:
            break
    return sent


def ticks(load: Load) -> Iterator[int]:
    """Yields how many records the caller must send now, again and again until the end of the load. Sleeps while none is
    due."""
    sent, began_s = 0, time.perf_counter()
    while (due := load.due(sent, time.perf_counter() - began_s)) is not None:
        if due:
            yield due
            sent += due
        else:
            time.sleep(load.wait_s(sent, time.perf_counter() - began_s))
