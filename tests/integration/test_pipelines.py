"""The data pipelines on a real Spark and a real cluster, on real data where there is some."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest
from klamm_process import KlammProcess, running_cluster

from klamm import Admin, NewTopic, Producer
from klamm_pipelines import flight_delays
from klamm_pipelines.job import Pipeline, run_in

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[KlammProcess]:
    settings = {"transaction.state.log.num.partitions": "5"}
    with running_cluster(tmp_path_factory.mktemp("cluster"), settings) as running:
        yield running


@pytest.fixture(scope="module")
def spark():
    from pyspark_klamm.local import local_session

    session = local_session("pipelines")
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture
def run(spark, cluster, tmp_path):
    """Runs a pipeline to the end of its topics; returns what it counted."""

    def run(pipeline: Pipeline, *arguments: str) -> dict[str, Any]:
        common = ["--bootstrap", cluster.bootstrap]
        if pipeline.start is not None:
            common += ["--checkpoint", str(tmp_path / pipeline.name)]
        return run_in(spark, pipeline, pipeline.parse([*common, *arguments]))

    return run


def create_topics(cluster: KlammProcess, *names: str, partition_count: int = 2) -> None:
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(name, partition_count=partition_count) for name in names])


def produce(cluster: KlammProcess, topic: str, records: Iterable[Mapping[str, Any]]) -> None:
    """Records as arguments of `Producer.send`."""
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for record in records:
            producer.send(topic, **record)
        producer.flush()


def read(spark, cluster: KlammProcess, *topics: str) -> list[Any]:
    """The committed records of topics, by topic, partition and offset."""
    options = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": ",".join(topics), "includeHeaders": "true"}
    return spark.read.format("klamm").options(**options).load().orderBy("topic", "partition", "offset").collect()


def documents(rows: Iterable[Any]) -> dict[str, Any]:
    """The JSON values of records by key, each of which there is once."""
    rows = list(rows)
    found = {bytes(row.key).decode(): json.loads(bytes(row.value)) for row in rows}
    assert len(found) == len(rows)
    return found


def test_flight_delays_counts_what_it_is_given(spark, cluster, run):
    create_topics(cluster, "departures", "delays")
    flights = [
        {"origin": "EWR", "scheduled": "2013-01-01T10:15:00Z", "dep_delay": 2},
        {"origin": "EWR", "scheduled": "2013-01-01T10:45:00Z", "dep_delay": 40},
        {"origin": "EWR", "scheduled": "2013-01-01T10:50:00Z", "dep_delay": None},
        {"origin": "JFK", "scheduled": "2013-01-01T11:00:00Z", "dep_delay": -3},
        {"origin": "EWR", "scheduled": "2013-01-01T11:59:00Z", "dep_delay": 15},
        {"scheduled": "2013-01-03T00:00:00Z"},
    ]
    values = [*map(json.dumps, flights), "not a flight", '{"origin": "LGA"}']
    produce(cluster, "departures", [{"value": value.encode(), "partition": 0} for value in values])
    assert run(flight_delays.PIPELINE, "--input", "departures", "--output", "delays") == {
        "batches": 1, "rows": 8, "flights": 5, "malformed": 2, "cancelled": 1, "late": 2, "behind_watermark": 0,
    }  # fmt: skip
    hours = documents(read(spark, cluster, "delays"))
    assert hours["EWR 2013-01-01T10:00:00Z"] == {
        "origin": "EWR", "hour": "2013-01-01T10:00:00Z", "departures": 2, "cancelled": 1, "late": 1,
        "mean_delay": 21.0, "worst_delay": 40,
    }  # fmt: skip
    assert set(hours) == {"EWR 2013-01-01T10:00:00Z", "JFK 2013-01-01T11:00:00Z", "EWR 2013-01-01T11:00:00Z"}
