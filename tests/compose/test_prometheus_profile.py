"""The profile prometheus: from nothing to records that were produced, consumed, and are on a chart."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from docker import DockerClient

from tests.chaos.klammchaos.partition_cluster import BROKERS
from tests.compose.compose_cluster import SERVICES, ComposeCluster
from tests.support.prometheus_server import PrometheusApi
from tests.support.waiting import patience

pytestmark = [pytest.mark.compose, pytest.mark.timeout(900)]

DASHBOARD = Path(__file__).resolve().parents[2] / "deploy" / "monitoring" / "grafana" / "dashboards" / "topics.json"
BROKER = 1
RECORDS = 1_000
RANGES = {"$cluster": "cluster", "$topic": "orders", "$__rate_interval": "1m"}


@pytest.fixture(scope="module")
def cluster(engine: DockerClient, base_image: str, prometheus_image: str) -> Iterator[ComposeCluster]:
    cluster = ComposeCluster(
        engine,
        "klamm-charts-test",
        base_image,
        profile="cluster,prometheus",
        variables={"PROMETHEUS_IMAGE": prometheus_image},
    )
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


def test_records_are_produced_consumed_and_charted(cluster: ComposeCluster) -> None:
    begin_s = time.monotonic()
    cluster.exec(BROKER, "klamm topics create orders --partitions 3")
    cluster.exec(BROKER, f"seq {RECORDS} | klamm produce orders")
    found = cluster.exec(BROKER, "klamm consume orders --from beginning --exit")
    assert sorted(map(int, found.split())) == list(range(1, RECORDS + 1))
    prometheus = PrometheusApi("localhost:9090")
    assert prometheus.until(prometheus.is_ready, True, 3 * patience())

    def ask(expression: str) -> list[float]:
        return [sample.value for sample in prometheus.ask(expression)]

    assert prometheus.until(lambda: ask("sum(up)"), [len(SERVICES)], 3 * patience()) == [len(SERVICES)]
    kept = _query("Records kept")
    assert prometheus.until(lambda: ask(kept), [RECORDS], 3 * patience()) == [RECORDS]
    # A rate needs two scrapes of the broker that appends: each broker has a replica, and has been scraped since.
    counters = 'count(klamm_broker_in_messages_total{topic="orders"})'
    assert prometheus.until(lambda: ask(counters), [len(BROKERS)], 3 * patience()) == [len(BROKERS)]
    cluster.exec(BROKER, f"seq {RECORDS} | klamm produce orders")
    rate = _query("Messages in")
    assert prometheus.until(lambda: [each > 0 for each in ask(rate)], [True], 3 * patience()) == [True]
    rules = prometheus.rules()
    assert rules
    assert {rule["health"] for rule in rules} <= {"ok", "unknown"}, rules
    charted = f"{ask(kept)} records kept, {ask(rate)} a second"
    print(f"\ncharted {time.monotonic() - begin_s:.0f} s after the first command: {charted}")


def _query(title: str) -> str:
    """The query of the dashboard's panel by that title."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    (panel,) = [one for one in panels if one["title"] == title]
    expression: str = panel["targets"][0]["expr"]
    for variable, value in RANGES.items():
        expression = expression.replace(variable, value)
    return expression
