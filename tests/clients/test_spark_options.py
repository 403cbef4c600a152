"""Spark's connector for Kafka and Klamm's data source, asked the same of one cluster: the cases of `spark_cases.py`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tests.clients.spark_cases import CASES, Case
from tests.clients.spark_connectors import Connector
from tests.support import java_programs

pytestmark = [pytest.mark.clients, pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    from pyspark_klamm import local_session

    jars = ",".join(map(str, java_programs.spark_jars()))
    # Each task has one attempt, so that a task that fails does so soon.
    session = local_session("clients", attempts=1, settings={"spark.jars": jars})
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(params=["kafka", "klamm"])
def connector(request: pytest.FixtureRequest, spark: Any, cluster: Any, tmp_path: Path) -> Iterator[Connector]:
    client = {"bootstrap.servers": cluster.bootstrap}
    bootstrap = cluster.bootstrap if request.param == "kafka" else cluster.klamm_bootstrap
    connector = Connector(
        request.param, spark, bootstrap, cluster.bootstrap, AdminClient(client), Producer(client), tmp_path
    )
    yield connector
    connector.close()


@pytest.mark.parametrize(
    "case", [pytest.param(each, id=each.name, marks=pytest.mark.spark_case(each)) for each in CASES]
)
def test_sparks_options_of_klamm_and_kafka_give_the_expected_result(connector: Connector, case: Case) -> None:
    assert case.ask(connector) == case.expected(connector.format)
