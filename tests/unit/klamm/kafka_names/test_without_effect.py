"""Kafka's names that Klamm accepts without effect, each with a reason."""

from __future__ import annotations

import logging

import pytest

from klamm.config import ClientConfig
from klamm.consumer.config import ConsumerConfig
from klamm.kafka_names.refused import refused_names
from klamm.kafka_names.without_effect import (
    NOTHING_READS_IT,
    OF_CLIENTS,
    OF_CONSUMERS,
    OF_PRODUCERS,
    by_reason,
    reason,
)
from klamm.producer.config import ProducerConfig
from klamm.setting import definitions


def test_a_client_reads_no_setting_that_it_accepts_without_effect() -> None:
    # Every client accepts `retries`, which only a producer reads.
    assert OF_CLIENTS.keys() & definitions(ClientConfig).keys() == set()
    assert OF_PRODUCERS.keys() & definitions(ProducerConfig).keys() == set()
    assert OF_CONSUMERS.keys() & definitions(ConsumerConfig).keys() == set()


def test_no_name_is_both_accepted_without_effect_and_refused() -> None:
    accepted = {**OF_CLIENTS, **OF_PRODUCERS, **OF_CONSUMERS}
    assert accepted.keys() & refused_names().keys() == set()


@pytest.mark.parametrize(
    ("name", "is_of_server", "expected"),
    [
        ("num.network.threads", True, "a server of Klamm handles all requests in one event loop"),
        ("remote.log.reader.threads", True, "Klamm has no tiered storage"),
        ("sasl.login.refresh.window.factor", True, "servers of Klamm do not log in to each other"),
        (
            "sasl.login.refresh.window.factor",
            False,
            "a client of Klamm renews a token after a fixed part of its lifetime",
        ),
        ("metrics.num.samples", True, "a server of Klamm shows its metrics to Prometheus (metrics.port)"),
        ("metrics.num.samples", False, "Klamm has no metrics reporters of Kafka's"),
        ("socket.listen.backlog.size", True, NOTHING_READS_IT),
    ],
)
def test_a_name_without_effect_has_the_reason_of_the_program(name: str, is_of_server: bool, expected: str) -> None:
    assert reason(name, is_of_server=is_of_server) == expected


def test_names_with_the_same_reason_are_grouped() -> None:
    names = ["b", "num.io.threads", "num.network.threads", "a"]
    assert by_reason(names, lambda name: name[:3]) == {
        "b": ["b"],
        "num": ["num.io.threads", "num.network.threads"],
        "a": ["a"],
    }


def test_a_client_logs_the_reason_why_a_config_has_no_effect(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        ProducerConfig.parse({"sasl.kerberos.service.name": "kafka", "partitioner.availability.timeout.ms": "1"})
    assert caplog.messages == [
        "config sasl.kerberos.service.name='kafka' has no effect in Klamm, because Klamm has no Kerberos",
        "config partitioner.availability.timeout.ms='1' has no effect in Klamm, because Klamm's partitioner does not"
        " measure the brokers",
    ]
