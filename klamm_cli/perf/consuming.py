"""Measures a consumer that reads a topic from its beginning to its end."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from klamm.errors import KlammError
from klamm_cli.perf.clients import open_consumer
from klamm_cli.perf.latencies import Latencies
from klamm_cli.perf.measurement import Measurement

_POLL_MS: Final = 1_000
_SILENCE_S: Final = 30.0


def measure_consume(settings: Mapping[str, object], topic: str, partitions: int, filled: Measurement) -> Measurement:
    """Reads the records with which the topic was filled, and returns the figures. The latencies are those of polls that
    returned records. Raises KlammError if no more records arrive for 30 seconds."""
    latencies = Latencies()
    seen = 0
    with open_consumer(settings, topic, partitions) as consumer:
        # The consumer connects to the leaders now. The producer sent one record before the others.
        wanted = sum(consumer.end_offsets(consumer.assignment()).values())
        began_s = heard_s = time.perf_counter()
        while seen < wanted:
            asked_s = time.perf_counter()
            count = sum(map(len, consumer.poll(timeout_ms=_POLL_MS).values()))
            now_s = time.perf_counter()
            if count:
                heard_s = now_s
                latencies.add(now_s - asked_s)
            elif now_s - heard_s > _SILENCE_S:
                raise KlammError(f"read {seen} of {wanted} records of {topic}, and no more for {_SILENCE_S:.0f} s")
            seen += count
        seconds = time.perf_counter() - began_s
    return Measurement(
        cell=filled.cell,
        records=seen,
        size_bytes=filled.size_bytes * seen // filled.records,
        stored_bytes=filled.stored_bytes * seen // filled.records,
        seconds=seconds,
        p50_ms=latencies.percentile_ms(50),
        p99_ms=latencies.percentile_ms(99),
    )
