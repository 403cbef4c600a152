"""Tests Kafka clients that log in by every mechanism, with right and wrong secrets, until their right ends."""

from __future__ import annotations

import contextlib
import pathlib
import socket
import ssl
import struct
import time
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from tests.support.aiokafka_loop import run_aiokafka
from tests.support.klamm_process import running_cluster
from tests.support.sasl_cluster import MECHANISMS, PASSWORD, USER, SaslCluster, token
from tests.support.waiting import patience, wait_until

PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL")
BOUND_MS = 8_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslCluster]:
    made = SaslCluster(tmp_path_factory.mktemp("sasl"), authentication_timeout_ms=str(BOUND_MS))
    with running_cluster(made.directory, made.settings, port=made.grpc) as made.process:
        made.set_password(USER, PASSWORD)
        yield made


def right(mechanism: str) -> str:
    return token() if mechanism == "OAUTHBEARER" else PASSWORD


def wrong(mechanism: str) -> list[dict[str, str]]:
    """Returns secrets that no listener accepts."""
    if mechanism == "OAUTHBEARER":
        return [{"password": token(lifetime_s=-3600)}, {"password": token(audience="another")}]
    return [{"password": "wrong"}, {"password": PASSWORD, "user": "nobody"}]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_client_with_the_right_credentials_writes_and_reads(
    cluster: SaslCluster, mechanism: str, protocol: str
) -> None:
    settings = cluster.client(mechanism, right(mechanism), protocol=protocol)
    topic = f"{mechanism}-{protocol}"
    producer = Producer({**settings, "transactional.id": topic})
    producer.init_transactions(patience())
    producer.begin_transaction()
    for number in range(100):
        producer.produce(topic, b"%d" % number)
    producer.commit_transaction(patience())
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    values: list[bytes | None] = []
    wait_until(lambda: values.extend(one.value() for one in consumer.consume(100, 1)) or len(values) >= 100)
    consumer.close()
    assert values == [b"%d" % number for number in range(100)]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_client_with_wrong_credentials_gets_an_authentication_error(cluster: SaslCluster, mechanism: str) -> None:
    for secret in wrong(mechanism):
        told: list[int] = []
        heard = {"error_cb": lambda error, told=told: told.append(error.code())}
        client = AdminClient({**cluster.client(mechanism, **secret), **heard})

        def is_told(client: AdminClient = client, told: list[int] = told) -> bool:
            client.poll(0.1)
            return KafkaError._AUTHENTICATION in told

        wait_until(is_told)
        with pytest.raises(KafkaException):
            client.list_topics(timeout=1)
    assert PASSWORD not in cluster.log()
    assert right("OAUTHBEARER").partition(".")[0] not in cluster.log()


class Tokens(AbstractTokenProvider):
    def __init__(self, text: str) -> None:
        self._text = text

    async def token(self) -> str:
        return self._text


def aio(cluster: SaslCluster, mechanism: str, password: str, user: str = USER) -> dict[str, Any]:
    secret: dict[str, Any] = {"sasl_plain_username": user, "sasl_plain_password": password}
    if mechanism == "OAUTHBEARER":
        secret = {"sasl_oauth_token_provider": Tokens(password)}
    return {
        "bootstrap_servers": cluster.address("SASL_SSL"),
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": mechanism,
        "ssl_context": ssl.create_default_context(cafile=str(cluster.server.truststore)),
        **secret,
    }


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka_logs_in_with_the_right_credentials_only(cluster: SaslCluster, mechanism: str) -> None:
    async def scenario() -> None:
        topic = f"aiokafka-{mechanism}"
        settings = aio(cluster, mechanism, right(mechanism))
        async with AIOKafkaProducer(**settings) as producer:
            await producer.send_and_wait(topic, b"value")
        async with AIOKafkaConsumer(topic, auto_offset_reset="earliest", **settings) as consumer:
            assert (await consumer.getone()).value == b"value"
        for secret in wrong(mechanism):
            producer = AIOKafkaProducer(**aio(cluster, mechanism, **secret))
            with pytest.raises(AioKafkaError):
                await producer.start()
            await producer.stop()

    run_aiokafka(scenario())


def logged_in(cluster: SaslCluster, password: str) -> socket.socket:
    """Returns a socket that has logged in by PLAIN, without a client library."""
    made = socket.create_connection(("127.0.0.1", cluster.sasl), patience())
    message = f"\0{USER}\0{password}".encode()
    for body in (
        struct.pack(">hhih", 17, 1, 1, -1) + b"\x00\x05PLAIN",
        struct.pack(">hhihi", 36, 1, 2, -1, len(message)) + message,
    ):
        made.sendall(struct.pack(">i", len(body)) + body)
        answer = made.recv(4096)
        assert answer[8:10] == b"\0\0", answer
    return made


def test_a_changed_password_ends_connections_at_once(cluster: SaslCluster) -> None:
    waiting = logged_in(cluster, PASSWORD)
    # The answer to ListGroups shows that the client is served.
    asked = struct.pack(">hhih", 16, 0, 3, -1)
    waiting.sendall(struct.pack(">i", len(asked)) + asked)
    assert waiting.recv(4096)
    cluster.set_password(USER, "another")
    began_s = time.monotonic()
    assert waiting.recv(1) == b""
    print(f"the connection ended {1000 * (time.monotonic() - began_s):.0f} ms after the answer")
    waiting.close()
    logged_in(cluster, "another").close()
    cluster.set_password(USER, PASSWORD)
    logged_in(cluster, PASSWORD).close()


def rss_mib(cluster: SaslCluster) -> float:
    status = pathlib.Path(f"/proc/{cluster.process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_5000_silent_connections_of_one_address_do_not_block_other_clients(cluster: SaslCluster, protocol: str) -> None:
    port = cluster.sasl if protocol == "SASL_PLAINTEXT" else cluster.sasl_ssl
    client = AdminClient(cluster.client("SCRAM-SHA-256", protocol=protocol))
    assert client.list_topics(timeout=patience()).brokers
    before_mib, took_s, silent = rss_mib(cluster), list[float](), list[socket.socket]()
    for number in range(5_000):
        one = socket.create_connection(("127.0.0.1", port), patience(), ("127.0.0.2", 0))
        # Every tenth client sends half a frame, the start of a frame of 2 GiB, or bytes of another protocol.
        with contextlib.suppress(OSError):
            one.sendall([b"", b"\0\0\1", b"\x7f\xff\xff\xff", b"GET ", b"\x16\x03\x01"][number % 5])
        silent.append(one)
        if len(silent) >= 400:
            silent.pop(0).close()
        if number % 250 == 0:
            began_s = time.monotonic()
            assert client.list_topics(timeout=patience()).brokers
            assert AdminClient(cluster.client("PLAIN", protocol=protocol)).list_topics(timeout=patience()).brokers
            took_s.append(time.monotonic() - began_s)
    grown_mib = rss_mib(cluster) - before_mib
    print(f"{protocol}: a good client waited {max(took_s):.2f} s at most, the process grew by {grown_mib:.0f} MiB")
    assert grown_mib < 60
    for one in silent:
        one.settimeout(patience())
        with contextlib.suppress(ConnectionError):
            while one.recv(4096):
                pass
        one.close()


def test_a_connection_that_sends_single_bytes_slowly_is_closed(cluster: SaslCluster) -> None:
    dripping = socket.create_connection(("127.0.0.1", cluster.sasl), patience(), ("127.0.0.3", 0))
    began_s = time.monotonic()
    dripping.sendall(b"\0\0\x08\0")
    with pytest.raises(ConnectionError):
        wait_until(lambda: dripping.sendall(b"\0"), "nobody cuts it off", pause_s=0.2)
    assert time.monotonic() - began_s > BOUND_MS / 1000 - 0.5
    dripping.close()
