"""Klamm and Kafka, of one broker each, set up by the same calls."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.clients.judge.side import Side, set_up
from tests.support.apache_kafka import running_kafka
from tests.support.klamm_process import running_cluster

Sides = tuple[Side, Side]


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    """Returns Klamm's side and Kafka's. Each module has clusters of its own, because some requests list all topics or
    groups. Another reason is that a broker aborts the open transaction after 15 minutes, its longest time-out."""
    # By default both look for transactions that timed out every ten seconds.
    often = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "50"}
    settings = {"group.initial.rebalance.delay.ms": "0"}
    with (
        running_cluster(tmp_path_factory.mktemp("judge"), settings | often) as klamm,
        running_kafka(tmp_path_factory.mktemp("judge-kafka"), settings=often) as apache_kafka,
    ):
        ours, kafka = Side(klamm.kafka_bootstrap), Side(apache_kafka.bootstrap)
        try:
            set_up(ours)
            set_up(kafka)
            yield ours, kafka
        finally:
            ours.close()
            kafka.close()
