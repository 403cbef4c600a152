"""Reads a sample of a topic's records: the last ones of each partition."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from klamm import Consumer, ConsumerRecord, TopicPartition
from klamm_cli.perf.sample import RECORDS_MAX, Sample, SampleRecord, taken_sample

if TYPE_CHECKING:
    from klamm import Admin

_POLL_MS: Final = 500
_SILENCE_S: Final = 10.0


def read_sample(admin: Admin, settings: Mapping[str, object], topic: str) -> Sample | None:
    """Returns records from the end of the topic, or None if there are none. Changes no committed offsets."""
    tps = [TopicPartition(topic, partition.partition) for partition in admin.describe_topics([topic])[topic].partitions]
    with Consumer({**settings, "enable.auto.commit": False, "allow.auto.create.topics": False}) as consumer:
        consumer.assign(tps)
        starts, ends = consumer.beginning_offsets(tps), consumer.end_offsets(tps)
        share = -(-RECORDS_MAX // sum(ends[tp] > starts[tp] for tp in tps)) if starts != ends else 0
        for tp in tps:
            consumer.seek(tp, max(starts[tp], ends[tp] - share))
        records = taken_sample(_read_to(consumer, ends))
    return Sample(records) if records else None


def _read_to(consumer: Consumer[Any, Any], ends: Mapping[TopicPartition, int]) -> Iterator[SampleRecord]:
    """Yields records until the ends of the partitions, or until no more arrive."""
    heard_s = time.monotonic()
    while any(consumer.position(tp) < end for tp, end in ends.items()) and time.monotonic() - heard_s < _SILENCE_S:
        polled: Mapping[TopicPartition, list[ConsumerRecord[Any, Any]]] = consumer.poll(timeout_ms=_POLL_MS)
        for records in polled.values():
            heard_s = time.monotonic()
            yield from (SampleRecord(record.key, record.value, record.headers) for record in records)
