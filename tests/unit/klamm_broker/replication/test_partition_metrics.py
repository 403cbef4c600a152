"""Tests the metrics of single partitions."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest

from klamm.model import TopicPartition
from klamm_broker.replica.partition import Partition
from klamm_broker.replication.partition_metrics import watch_partitions
from klamm_server.metrics.prometheus import registry

FOUR_HOURS_MS = 14_400_000


class StartThatGrowsWithTime:
    """Stands for the retention of a log. Its forecast shows the arguments that it was given."""

    def forecast_start(self, *, now_ms: int, ahead_ms: int, high_watermark: int) -> int:
        return min(now_ms + ahead_ms, high_watermark)


class NoProducers:
    """Stands for the producers of a log without open transactions."""

    def open_transaction_last_ms(self) -> None:
        return None


def partition(topic: str, *, is_leader: bool, high_watermark: int = 10**9) -> Partition:
    log = SimpleNamespace(
        log_start_offset=3,
        retention=StartThatGrowsWithTime(),
        segments=SimpleNamespace(size_bytes=1),
        producers=NoProducers(),
    )
    stands_in = SimpleNamespace(
        topic_partition=TopicPartition(topic, 0),
        is_leader=is_leader,
        leadership=None,
        high_watermark=high_watermark,
        log=log,
    )
    return cast(Partition, stands_in)


def value(name: str, topic: str) -> float | None:
    return registry().get_sample_value(f"klamm_broker_partition_{name}", {"topic": topic, "partition": "0"})


@pytest.fixture
def _watched() -> Iterator[None]:
    partitions = [
        partition("led", is_leader=True),
        partition("short", is_leader=True, high_watermark=17),
        partition("followed", is_leader=False),
    ]
    watch_partitions(lambda: partitions, lambda: 5)
    yield
    watch_partitions(tuple, lambda: 0)


@pytest.mark.usefixtures("_watched")
def test_a_leader_shows_where_its_log_starts_now_and_in_four_hours() -> None:
    names = ("log_start_offset", "log_start_offset_in_4h", "high_watermark")
    assert [value(name, "led") for name in names] == [3, 5 + FOUR_HOURS_MS, 10**9]
    assert [value(name, "short") for name in names] == [3, 17, 17]
    assert [value(name, "followed") for name in names] == [None, None, None]
