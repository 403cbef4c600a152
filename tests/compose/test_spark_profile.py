"""Tests the profile spark. A pipeline runs in a container of its own, and clients on the host see its output once."""

from __future__ import annotations

import datetime
import json
import time
from collections import defaultdict
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer
from docker import DockerClient

from tests.compose.compose_cluster import ComposeCluster, log_end, memory_of
from tests.support.violation import verdict
from tests.support.waiting import patience

pytestmark = [pytest.mark.compose, pytest.mark.timeout(1800)]  # building the image included

HOURS = 9
"""Figures of three airports, so three hours of departures: half a minute."""


@pytest.fixture(scope="module")
def cluster(engine: DockerClient, spark_image: str) -> Iterator[ComposeCluster]:
    cluster = ComposeCluster(engine, "klamm-spark-test", spark_image, profile="spark")
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


@pytest.fixture
def consumer() -> Iterator[Consumer]:
    """A Kafka client on the host."""
    settings = {"isolation.level": "read_committed", "auto.offset.reset": "earliest", "group.id": "delays"}
    made = Consumer({"bootstrap.servers": "localhost:9092", "topic.metadata.refresh.interval.ms": "1000", **settings})
    made.subscribe(["flight-delays"])
    yield made
    made.close()


def test_the_delay_figures_are_written_once_although_the_driver_is_killed(
    cluster: ComposeCluster, consumer: Consumer
) -> None:
    begin_s = time.monotonic()
    figures = _read(consumer, HOURS, cluster)
    print(f"\n{len(figures)} figures {time.monotonic() - begin_s:.0f} s after the cluster was healthy")
    driver = cluster.container_of("spark")
    print(f"memory: {memory_of(driver)}")
    driver.kill()
    driver.start()
    begin_s = time.monotonic()
    figures += _read(consumer, HOURS, cluster)
    print(f"{HOURS} more {time.monotonic() - begin_s:.0f} s after the driver was killed")
    with verdict():
        assert len(set(figures)) == len(figures), "an hour came out twice"
    hours: defaultdict[str, list[datetime.datetime]] = defaultdict(list)
    for origin, hour in figures:
        hours[origin].append(datetime.datetime.fromisoformat(hour))
    for origin, seen in hours.items():
        first = min(seen)
        wanted = [first + datetime.timedelta(hours=number) for number in range(len(seen))]
        with verdict():
            assert sorted(seen) == wanted, f"{origin} lacks an hour"


def _read(consumer: Consumer, count: int, cluster: ComposeCluster) -> list[tuple[str, str]]:
    """(airport, hour) of at least `count` new figures, and of those that came with them."""
    found: list[tuple[str, str]] = []
    values: list[dict[str, str]] = []
    until_s = time.monotonic() + 3 * patience()
    while len(found) < count or values:
        assert time.monotonic() < until_s, log_end(cluster.container_of("spark"))
        values = [json.loads(message.value()) for message in consumer.consume(100, 1.0) if message.error() is None]
        found += [(value["origin"], value["hour"]) for value in values]
    return found
