"""Asks the cluster for the facts about a group. Changes nothing."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from klamm.model import TopicPartition
from klamm.printable import printable
from klamm_cli.console.command_config import client_settings
from klamm_cli.why.causes import hot_partition
from klamm_cli.why.facts import KeySample, KeyShare, OpenTransaction, WhyFacts, Written

if TYPE_CHECKING:
    from klamm import Admin
    from klamm.offsets import OffsetAndTimestamp

MINUTE_MS: Final = 60_000
RECENT_MS: Final = 10 * MINUTE_MS
BEFORE_MS: Final = 70 * MINUTE_MS
SAMPLE_RECORDS: Final = 500
"""How many of the newest records of a partition are read for their keys."""
SAMPLE_S: Final = 1.5
KEYS_SHOWN: Final = 5


def gather(admin: Admin, bootstrap: str, group: str, *, timeout_ms: int) -> WhyFacts:
    """Returns the facts about a group. Raises KlammError."""
    description = admin.describe_groups([group], timeout_ms=timeout_ms)[group]
    lag = admin.describe_group_lag([group], timeout_ms=timeout_ms)[group]
    ends = {
        partition.tp: partition.high_watermark for partition in lag.partitions if partition.high_watermark is not None
    }
    facts = WhyFacts(
        description=description,
        lag=lag,
        written=_written(admin, ends, lag.time_ms, timeout_ms),
        transactions=_transactions(
            admin,
            {
                partition.held_by_producer_id
                for partition in lag.partitions
                if partition.held_by_producer_id is not None
            },
            timeout_ms,
        ),
    )
    hot = hot_partition(facts)
    return facts if hot is None else replace(facts, sample=_sample(bootstrap, hot, ends[hot]))


def _written(
    admin: Admin, ends: Mapping[TopicPartition, int], now_ms: int, timeout_ms: int
) -> dict[TopicPartition, Written]:
    def since(age_ms: int) -> Mapping[TopicPartition, OffsetAndTimestamp]:
        return admin.list_offsets(dict.fromkeys(ends, now_ms - age_ms), timeout_ms=timeout_ms)

    minute, recent, before = since(MINUTE_MS), since(RECENT_MS), since(BEFORE_MS)
    return {
        tp: written(end, minute[tp], recent[tp], before[tp], now_ms)
        for tp, end in ends.items()
        if tp in minute and tp in recent and tp in before
    }


def written(
    end: int, minute: OffsetAndTimestamp, recent: OffsetAndTimestamp, before: OffsetAndTimestamp, now_ms: int
) -> Written:
    """Returns the rates of a partition whose log ends at `end`.

    The other offsets are of the first records of the last minute, of ten minutes and of seventy. An offset is -1 if
    there is no such record. Pure."""
    recent_offset = end if recent.offset < 0 else recent.offset
    minute_count = 0 if minute.offset < 0 else end - minute.offset
    before_per_s = None
    if before.offset >= 0:
        window_ms = now_ms - RECENT_MS - before.timestamp
        if window_ms >= RECENT_MS:
            before_per_s = 1000 * max(0, recent_offset - before.offset) / window_ms
    return Written(max(0, end - recent_offset), minute_count / (MINUTE_MS / 1000), before_per_s)


def _transactions(admin: Admin, producer_ids: Iterable[int], timeout_ms: int) -> dict[int, OpenTransaction]:
    wanted = [producer_id for producer_id in producer_ids if producer_id >= 0]
    if not wanted:
        return {}
    listed = admin.list_transactions(producer_ids=wanted, timeout_ms=timeout_ms)
    described = admin.describe_transactions(list(listed), timeout_ms=timeout_ms)
    now_ms = round(time.time() * 1000)
    return {
        transaction.producer_id: OpenTransaction(
            transaction.transactional_id, max(0, now_ms - transaction.start_time_ms), transaction.transaction_timeout_ms
        )
        for transaction in described.values()
        if transaction.start_time_ms >= 0
    }


def _sample(bootstrap: str, tp: TopicPartition, end: int) -> KeySample:
    """Reads the newest records of a partition, and counts their keys."""
    from klamm import Consumer
    from klamm.consumer.config import ConsumerConfig

    keys: Counter[bytes | None] = Counter()
    settings = {**client_settings(bootstrap, ConsumerConfig), "auto.offset.reset": "earliest"}
    deadline_s = time.monotonic() + SAMPLE_S
    with Consumer(settings) as consumer:
        consumer.assign([tp])
        consumer.seek(tp, max(0, end - SAMPLE_RECORDS))
        while consumer.position(tp) < end and (left_s := deadline_s - time.monotonic()) > 0:
            for records in consumer.poll(round(left_s * 1000)).values():
                keys.update(record.key for record in records if record.offset < end)
    return key_sample(tp, keys)


def key_sample(tp: TopicPartition, keys: Counter[bytes | None]) -> KeySample:
    """Returns the most frequent keys. Records without a key have none. Pure."""
    total = sum(keys.values())
    shares = [KeyShare(_text(key), count / total) for key, count in keys.most_common(KEYS_SHOWN) if key is not None]
    return KeySample(tp, total, shares)


def _text(key: bytes) -> str:
    return printable(key.decode(errors="backslashreplace"))
