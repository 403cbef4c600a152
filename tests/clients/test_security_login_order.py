"""Tests requests that must not be sent during a login, with Klamm and with Apache Kafka: the answers, and when the
connection is closed."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from klamm.errors import ErrorCode
from klamm_broker.kafka import messages
from klamm_broker.kafka.requests import SPOKEN, ApiKey
from klamm_broker.kafka.schemas import request_schema
from tests.support.apache_kafka import ApacheKafka
from tests.support.every_request import requests
from tests.support.kafka_wire import KafkaWire
from tests.support.klamm_process import running_cluster
from tests.support.sasl_cluster import PASSWORD, USER, SaslCluster
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.clients, pytest.mark.timeout(600)]
REQUESTS = [
    (api_key, version)
    for api_key, spoken in SPOKEN.items()
    if api_key is not ApiKey.SASL_AUTHENTICATE
    for version in range(spoken.min, spoken.max + 1)
]
FIELDS = {
    ApiKey.DESCRIBE_ACLS: requests("name")[ApiKey.DESCRIBE_ACLS],
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: {"users": []},
    ApiKey.SASL_HANDSHAKE: {"mechanism": "PLAIN"},
}
"""The fields of requests that Kafka cannot read, or cannot refuse, if they are empty."""
SETTINGS = {"connection_failed_authentication_delay_ms": "0", "connections_max_reauth_ms": "3600000"}
ILLEGAL = ErrorCode.ILLEGAL_SASL_STATE
Open = Callable[[], KafkaWire]


@pytest.fixture(scope="module")
def klamm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Open]:
    cluster = SaslCluster(tmp_path_factory.mktemp("klamm"), **SETTINGS)
    with running_cluster(cluster.directory, cluster.settings, port=cluster.grpc) as cluster.process:
        cluster.set_password(USER, PASSWORD)
        yield lambda: KafkaWire(cluster.address("SASL_PLAINTEXT"))


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Open]:
    module = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": module,
        **{name.replace("_", "."): text for name, text in SETTINGS.items()},
    }
    cluster = ApacheKafka(tmp_path_factory.mktemp("kafka"), settings=settings, secured=["SASL"])
    try:
        cluster.start()
        yield lambda: KafkaWire(cluster.secured_bootstraps["SASL"])
    finally:
        cluster.kill()


def nothing(schema: Any) -> dict[str, Any]:
    """The smallest request."""
    made = dict(messages._nothing(schema))
    for name, hint in typing.get_type_hints(schema).items():
        if dataclasses.is_dataclass(hint) and name in made:
            made[name] = nothing(hint)
    return made


def answered(side: Open, api_key: ApiKey, version: int, *, logged_in: bool = False) -> Any:
    """Returns the answer to a request between SaslHandshake and SaslAuthenticate, or None. Afterwards the connection
    must be closed."""
    with side() as wire:
        if logged_in:
            assert handshake(wire)
            login = {"auth_bytes": b"\0" + USER.encode() + b"\0" + PASSWORD.encode()}
            assert not wire.ask(ApiKey.SASL_AUTHENTICATE, 1, login).error_code
        # Kafka takes no other login for a second.
        wait_until(lambda: handshake(wire))
        fields = {**nothing(request_schema(api_key, version)), **FIELDS.get(api_key, {})}
        try:
            answer = wire.ask(api_key, version, fields)
        except ConnectionError:
            return None
        with pytest.raises(ConnectionError):
            wire.ask(ApiKey.API_VERSIONS, 0, {})
        return answer


def handshake(wire: KafkaWire) -> bool:
    return not wire.ask(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}).error_code


def told(answer: Any) -> Any:
    """Returns the answer without its texts."""
    if answer is None or getattr(answer, "error_code", None) != ILLEGAL:
        return None
    texts = {name: None for name in ("error_message",) if hasattr(answer, name)}
    return dataclasses.replace(answer, **texts)


@pytest.mark.parametrize("logged_in", [False, True], ids=["first", "again"])
def test_a_request_during_a_sasl_login_gets_the_same_error_as_from_kafka(
    klamm: Open, kafka: Open, logged_in: bool
) -> None:
    wanted = [ApiKey.HEARTBEAT, ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE] if logged_in else list(ApiKey)
    differences, refused = [], set()
    for api_key, version in REQUESTS:
        if api_key not in wanted:
            continue
        ours, theirs = (answered(side, api_key, version, logged_in=logged_in) for side in (klamm, kafka))
        if told(ours) != told(theirs):
            differences.append(f"{api_key.name} {version}: {ours} {theirs}")
        if told(ours) is not None:
            refused.add(api_key)
        elif ours is not None:
            differences.append(f"{api_key.name} {version}: {ours}")
    assert not differences, "\n".join(differences)
    assert refused >= {ApiKey.HEARTBEAT, ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE}


def test_a_request_before_the_sasl_handshake_closes_the_connection(klamm: Open, kafka: Open) -> None:
    for side in (klamm, kafka):
        for api_key, version in (ApiKey.HEARTBEAT, 4), (ApiKey.METADATA, 13), (ApiKey.FIND_COORDINATOR, 6):
            with side() as wire, pytest.raises(ConnectionError):
                wire.ask(api_key, version, nothing(request_schema(api_key, version)))
