"""Tests requests that must not be sent during a login, with Klamm and with Apache Kafka: the answers, and when the
connection is closed."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pytest

from klamm.errors import ErrorCode
from klamm_broker.kafka.api import ApiKey
from klamm_broker.kafka.codec import messages
from klamm_broker.kafka.codec.schemas import request_schema
from klamm_broker.kafka.served_apis import SPOKEN
from tests.support.apache_kafka import ApacheKafka
from tests.support.every_request import requests
from tests.support.kafka_wire import KafkaWire
from tests.support.klamm_process import running_cluster
from tests.support.ports import free_ports
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
SETTINGS = {
    "connection_failed_authentication_delay_ms": "0",
    "connections_max_reauth_ms": "3600000",
    "listener_name_endless_plain_connections_max_reauth_ms": "0",
    "listener_name_ended_plain_connections_max_reauth_ms": "1",
}
SESSIONS = ("ENDLESS", "ENDED")
"""The listeners whose sessions have no end, or end after a millisecond."""
LOGIN = {"auth_bytes": b"\0" + USER.encode() + b"\0" + PASSWORD.encode()}
ILLEGAL = ErrorCode.ILLEGAL_SASL_STATE
Asked = tuple[ApiKey, int, dict[str, Any]]


class Open(NamedTuple):
    """Opens a connection to the listener of long sessions, or to one of SESSIONS."""

    addresses: Mapping[str, str]

    def __call__(self, listener: str = "SASL") -> KafkaWire:
        return KafkaWire(self.addresses[listener])


@pytest.fixture(scope="module")
def klamm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Open]:
    cluster = SaslCluster(tmp_path_factory.mktemp("klamm"), **SETTINGS)
    more = dict(zip(SESSIONS, (f"localhost:{port}" for port in free_ports(range(len(SESSIONS)))), strict=True))
    cluster.settings["listeners"] += "".join(f",{name}://{address}" for name, address in more.items())
    cluster.settings["listener.security.protocol.map"] = ",".join(f"{name}:SASL_PLAINTEXT" for name in SESSIONS)
    with running_cluster(cluster.directory, cluster.settings, port=cluster.grpc) as cluster.process:
        cluster.set_password(USER, PASSWORD)
        yield Open({"SASL": cluster.address("SASL_PLAINTEXT"), **more})


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Open]:
    listeners = ("SASL", *SESSIONS)
    module = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,"
        + ",".join(f"{name}:SASL_PLAINTEXT" for name in listeners),
        "sasl.enabled.mechanisms": "PLAIN",
        **{f"listener.name.{name.lower()}.plain.sasl.jaas.config": module for name in listeners},
        **{name.replace("_", "."): text for name, text in SETTINGS.items()},
    }
    cluster = ApacheKafka(tmp_path_factory.mktemp("kafka"), settings=settings, secured=listeners)
    try:
        cluster.start()
        yield Open(cluster.secured_bootstraps)
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
            assert not wire.ask(ApiKey.SASL_AUTHENTICATE, 1, LOGIN).error_code
        # No other login may begin for a second.
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


HANDSHAKE = ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}
AUTHENTICATE = ApiKey.SASL_AUTHENTICATE, 1, LOGIN
VERSIONS: Asked = (ApiKey.API_VERSIONS, 0, {})
HEARTBEAT = ApiKey.HEARTBEAT, 4, nothing(request_schema(ApiKey.HEARTBEAT, 4))
NEW_LOGIN = [HANDSHAKE, AUTHENTICATE]


def codes(wire: KafkaWire, asked: Sequence[Asked]) -> list[int]:
    """Returns the error codes of the answers."""
    return [int(wire.ask(*request).error_code) for request in asked]


@pytest.mark.parametrize(
    ("listener", "asked", "expected"),
    [
        ("SASL", [AUTHENTICATE, VERSIONS], [ILLEGAL, 0]),
        ("SASL", [*NEW_LOGIN, VERSIONS], [0, 0, 0]),
        ("SASL", [*NEW_LOGIN, *NEW_LOGIN, VERSIONS], [0, 0, ILLEGAL, ILLEGAL, 0]),
        ("ENDLESS", [*NEW_LOGIN, VERSIONS], [ILLEGAL, ILLEGAL, 0]),
    ],
)
def test_a_login_after_the_login_gets_the_same_answers_as_from_kafka(
    klamm: Open, kafka: Open, listener: str, asked: list[Asked], expected: list[int]
) -> None:
    for side in (klamm, kafka):
        with side(listener) as wire:
            assert codes(wire, NEW_LOGIN) == [0, 0]
            assert codes(wire, asked) == expected


@pytest.mark.parametrize("request_", [HANDSHAKE, AUTHENTICATE, VERSIONS, HEARTBEAT], ids=lambda one: one[0].name)
def test_the_end_of_a_session_closes_the_connection_as_with_kafka(klamm: Open, kafka: Open, request_: Asked) -> None:
    for side in (klamm, kafka):
        with side("ENDED") as wire:
            # The second login renews the session, so that a handshake may not begin a third one for a second.
            assert codes(wire, [*NEW_LOGIN, *NEW_LOGIN]) == [0, 0, 0, 0]
            with pytest.raises(ConnectionError):
                wait_until(lambda wire=wire: codes(wire, [request_]) is None)
