"""Klamm and a real Apache Kafka, asked the same."""

from __future__ import annotations

import pytest
from apache_kafka import ApacheKafka, running_kafka
from kafka_wire import KafkaWire
from kio.schema.errors import ErrorCode

from klamm_broker.kafka.requests import ApiKey

pytestmark = [pytest.mark.clients, pytest.mark.timeout(600)]


def ranges(bootstrap: str) -> dict[int, tuple[int, int]]:
    """api key -> first and last version"""
    asked = {"client_software_name": "wire", "client_software_version": "1"}
    with KafkaWire(bootstrap) as wire:
        answer = wire.ask(ApiKey.API_VERSIONS, 3, asked)
    assert answer.error_code == ErrorCode.none
    return {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}


def test_klamm_speaks_no_version_that_kafka_does_not(bootstrap: str, apache_kafka: ApacheKafka) -> None:
    ours, theirs = ranges(bootstrap), ranges(apache_kafka.bootstrap)
    assert ours.keys() <= theirs.keys()
    beyond = {
        key: (spoken, theirs[key])
        for key, spoken in ours.items()
        if spoken[0] < theirs[key][0] or spoken[1] > theirs[key][1]
    }
    assert not beyond


def test_three_nodes_know_each_other(tmp_path) -> None:
    asked = {"topics": [], "allow_auto_topic_creation": False, "include_topic_authorized_operations": False}
    with running_kafka(tmp_path, brokers=3) as kafka:
        assert len(kafka.bootstrap.split(",")) == 3
        for address in kafka.bootstrap.split(","):
            with KafkaWire(address) as wire:
                assert {one.node_id for one in wire.ask(ApiKey.METADATA, 12, asked).brokers} == {1, 2, 3}
