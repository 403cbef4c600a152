"""Tests which Kafka listener serves the clients of a gRPC listener too."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from klamm_server.net.listener_pairs import kafka_beside
from klamm_server.net.listeners import listener_set


@pytest.mark.parametrize(
    ("listeners", "own", "expected"),
    [
        ("GRPC://a:1,KAFKA://a:2", {}, {"GRPC": "KAFKA"}),
        ("GRPC://a:1,KAFKA://b:2", {}, {}),
        ("GRPC://a:1", {}, {}),
        ("GRPC_SSL://a:1,PLAINTEXT://a:2,SSL://a:3", {}, {"GRPC_SSL": "SSL"}),
        ("GRPC_SSL://a:1,SSL://a:3", {"SSL": {"ssl.client.auth": "required"}}, {}),
        (
            "GRPC_SSL://a:1,SSL://a:3",
            {"SSL": {"ssl.client.auth": "required"}, "GRPC_SSL": {"ssl.client.auth": "required"}},
            {"GRPC_SSL": "SSL"},
        ),
        ("GRPC_SASL_SSL://a:1,SASL_SSL://a:2,SASL_PLAINTEXT://a:3", {}, {"GRPC_SASL_SSL": "SASL_SSL"}),
        ("GRPC://a:1,PLAINTEXT://b:2,KAFKA://a:3", {}, {"GRPC": "KAFKA"}),
    ],
)
def test_a_kafka_listener_is_beside_a_grpc_listener_that_treats_clients_alike(
    listeners: str, own: Mapping[str, Mapping[str, str]], expected: Mapping[str, str]
) -> None:
    made = listener_set(listeners.split(","), None, ())
    assert kafka_beside(made, lambda name: own.get(name, {})) == expected


def test_the_host_that_clients_dial_counts() -> None:
    made = listener_set(["GRPC://0.0.0.0:1", "KAFKA://0.0.0.0:2"], ["GRPC://a:1", "KAFKA://b:2"], ())
    assert kafka_beside(made, lambda _: {}) == {}
