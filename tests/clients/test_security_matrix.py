"""Tests each real client with each way to log in: the right secret, a wrong one, an expired one, and no rights.

The client must report the same outcome as with Apache Kafka for the same users, keys and rights.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AioTokenProvider
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import Consumer, KafkaError, Message, Producer
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError as PythonKafkaError
from kafka.net.sasl.oauth import AbstractTokenProvider
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

import klamm
from klamm.errors import ErrorCode
from tests.clients import ways_in
from tests.clients.secured_sides import GROUP, TIMEOUT_S, TOPIC, SecuredSide, kafka_side, klamm_side
from tests.clients.ways_in import CELLS, Case, Identity, Way
from tests.support import java_programs
from tests.support.aiokafka_loop import run_aiokafka

pytestmark = [pytest.mark.clients, pytest.mark.timeout(900)]
MATRIX = "gets in by certificate, password and token, and names what keeps it out"
DONE = "done"
REFUSED_S = 15
"""How long the test waits for a client that retries for ever and reports a refusal only in its log."""
Outcomes = dict[tuple[Way, Case, str], str]


@pytest.fixture(scope="module")
def klamm_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredSide]:
    with klamm_side(tmp_path_factory.mktemp("klamm")) as made:
        yield made


@pytest.fixture(scope="module")
def kafka_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredSide]:
    with kafka_side(tmp_path_factory.mktemp("apache-kafka")) as made:
        yield made


def steps(way: Way, case: Case) -> Iterator[tuple[Way, Case, str]]:
    """Yields the steps of a case. A client that cannot log in tries only one step."""
    yield way, case, "produces"
    if case in (Case.RIGHT, Case.NO_ACL):
        yield way, case, "consumes"


STEPS = [step for cell in CELLS for step in steps(*cell)]


def check(ours: Outcomes, kafkas: Outcomes, *, apart: Collection[tuple[Way, Case]] = ()) -> None:
    """Checks that both sides have the same outcomes, except the cells in `apart`. Only the right client must get in."""
    different = {cell: (outcome, kafkas[cell]) for cell, outcome in ours.items() if outcome != kafkas[cell]}
    assert {cell[:2] for cell in different} <= set(apart), different
    for (way, case, step), outcome in ours.items():
        print(f"{way} | {case} | {step} | {outcome}")
        assert (outcome == DONE) == (case is Case.RIGHT), f"{way} {case} {step}: {outcome}"


def by_steps(
    side: SecuredSide, step: Callable[[Identity, str], str], offered: Collection[Way] = tuple(Way)
) -> Outcomes:
    return {(way, case, name): step(side.identity(way, case), name) for way, case, name in STEPS if way in offered}


# Java


def by_java(side: SecuredSide) -> Outcomes:
    directory = side.directory / "java"
    directory.mkdir()
    names: dict[str, tuple[Way, Case, str]] = {}
    urls = []
    for way, case, step in STEPS:
        one = side.identity(way, case)
        settings = {**ways_in.java(one), "request.timeout.ms": "10000", "max.block.ms": "30000"}
        (directory / f"{one.name}.properties").write_text(
            "".join(f"{name}={text}\n" for name, text in settings.items())
        )
        names[f"{one.name}:{step}"] = way, case, step
        if one.token:
            urls.append(one.token_file.as_uri())
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={','.join(urls)}"
    asked = [str(directory), TOPIC, GROUP, "no-transaction", *names]
    command = java_programs.command("clients.Rights", *asked, jvm=[*java_programs.JVM, allowed])
    run = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    told = dict(line.split() for line in run.stdout.splitlines() if line.partition(" ")[0] in names)
    assert told.keys() == names.keys(), run.stdout + run.stderr
    return {names[asked]: outcome for asked, outcome in told.items()}


@pytest.mark.behaviour("Java", MATRIX)
def test_java_logs_in_or_is_refused_as_with_kafka(klamm_cluster: SecuredSide, kafka_cluster: SecuredSide) -> None:
    check(by_java(klamm_cluster), by_java(kafka_cluster))


# librdkafka

# A refused certificate is compared only as "both refused it with an error of OpenSSL", whose texts all have these
# words. librdkafka's own words depend on a race that both servers provoke. It calls SSL_connect once, directly after
# the TCP connection. If the server's certificate is there before this call reads, the call fails, and librdkafka
# reports _TRANSPORT and OpenSSL's text (`rd_kafka_transport_ssl_connect`). If the certificate comes later,
# librdkafka reports _SSL and "SSL handshake failed: " before the same text (`rd_kafka_transport_ssl_handshake`).
# A client that sleeps between its write and its read always reports _TRANSPORT, of Klamm and of Apache Kafka.
REFUSED_BY_OPENSSL = "SSL routines"


class ReportedOutcomes:
    """The outcome that a client of librdkafka reports: the first error with the reason why it cannot log in, or the
    error of its record."""

    def __init__(self) -> None:
        self.outcome = ""

    def on_error(self, error: KafkaError) -> None:
        # That no broker is left follows from the others.
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            told = REFUSED_BY_OPENSSL if REFUSED_BY_OPENSSL in error.str() else str(error.name())
            self.outcome = self.outcome or told

    def on_delivery(self, error: KafkaError | None, message: Message) -> None:
        self.outcome = self.outcome or (DONE if error is None else str(error.name()))


def by_confluent(one: Identity, step: str) -> str:
    heard = ReportedOutcomes()
    settings = {**ways_in.librdkafka(one), "error_cb": heard.on_error}
    until_s = time.monotonic() + TIMEOUT_S
    if step == "produces":
        producer = Producer(settings)
        producer.produce(TOPIC, b"v", on_delivery=heard.on_delivery)
        while not heard.outcome and time.monotonic() < until_s:
            producer.poll(0.1)
        producer.purge()
        return heard.outcome
    consumer = Consumer({**settings, "group.id": GROUP, "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    try:
        while not heard.outcome and time.monotonic() < until_s:
            got = consumer.poll(0.1)
            if got is not None:
                heard.on_delivery(got.error(), got)
        return heard.outcome
    finally:
        consumer.close()


@pytest.mark.behaviour("confluent-kafka", MATRIX)
def test_confluent_logs_in_or_is_refused_as_with_kafka(klamm_cluster: SecuredSide, kafka_cluster: SecuredSide) -> None:
    check(by_steps(klamm_cluster, by_confluent), by_steps(kafka_cluster, by_confluent))


KCAT_SAYS = {
    REFUSED_BY_OPENSSL: REFUSED_BY_OPENSSL,
    "SASL authentication error": "SASL authentication error",
    "Topic authorization failed": "TOPIC_AUTHORIZATION_FAILED",
    "Group authorization failed": "GROUP_AUTHORIZATION_FAILED",
    ErrorCode.GROUP_AUTHORIZATION_FAILED.text: "GROUP_AUTHORIZATION_FAILED",
}
"""The meanings of kcat's messages. kcat prints the server's text for an error of FindCoordinator."""


def by_kcat(one: Identity, step: str) -> str:
    options = [f"-X{name}={text}" for name, text in ways_in.librdkafka(one).items()]
    if step == "produces":
        ends = ["-P", "-t", TOPIC]
    else:
        # The stranger may read the topic, but not in a group.
        ends = ["-X", "auto.offset.reset=earliest", "-G", GROUP, "-c", "1", TOPIC]
    command = ["timeout", str(REFUSED_S), "kcat", *options, *ends]
    run = subprocess.run(command, input="v\n", capture_output=True, text=True, check=False)
    if run.returncode == 0:
        return DONE
    return next((meaning for text, meaning in KCAT_SAYS.items() if text in run.stderr), run.stderr)


@pytest.mark.behaviour("kcat", MATRIX)
@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat not found: make test and make clients install it")
def test_kcat_logs_in_or_is_refused_as_with_kafka(klamm_cluster: SecuredSide, kafka_cluster: SecuredSide) -> None:
    # It has no call for a token, and old ones repeat another nonce than the server's in SCRAM.
    offered = [Way.SSL, Way.MTLS, Way.PLAIN]
    check(by_steps(klamm_cluster, by_kcat, offered), by_steps(kafka_cluster, by_kcat, offered))


# aiokafka


class AioToken(AioTokenProvider):
    """One token."""

    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


async def aiokafka_step(one: Identity, step: str) -> None:
    settings = ways_in.aiokafka(one, AioToken)
    if step == "produces":
        producer = AIOKafkaProducer(**settings)
        try:
            await producer.start()
            await producer.send_and_wait(TOPIC, b"v")
        finally:
            await producer.stop()
        return
    consumer = AIOKafkaConsumer(TOPIC, group_id=GROUP, auto_offset_reset="earliest", **settings)
    try:
        await consumer.start()
        await consumer.getone()
    finally:
        await consumer.stop()


def by_aiokafka(one: Identity, step: str) -> str:
    try:
        run_aiokafka(aiokafka_step(one, step), TIMEOUT_S)
    except AioKafkaError as error:
        return type(error).__name__
    return DONE


@pytest.mark.behaviour("aiokafka", MATRIX)
def test_aiokafka_logs_in_or_is_refused_as_with_kafka(klamm_cluster: SecuredSide, kafka_cluster: SecuredSide) -> None:
    # aiokafka continues after its token was refused, because the refusal is in a message of the mechanism. Kafka
    # answers the next request, without brokers, before it closes the connection. Klamm closes it at once.
    apart = [(Way.OAUTHBEARER, Case.WRONG), (Way.OAUTHBEARER, Case.EXPIRED)]
    check(by_steps(klamm_cluster, by_aiokafka), by_steps(kafka_cluster, by_aiokafka), apart=apart)


# kafka-python


class PythonToken(AbstractTokenProvider):
    """One token."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token

    def token(self) -> str:
        return self._token


def by_kafka_python(one: Identity, step: str) -> str:
    settings = {**ways_in.kafka_python(one, PythonToken), "bootstrap_timeout_ms": REFUSED_S * 1_000}
    try:
        if step == "produces":
            with contextlib.closing(KafkaProducer(**settings)) as producer:
                producer.send(TOPIC, b"v").get(TIMEOUT_S)
            return DONE
        # As in the test of rights: a short age of metadata, or its topic's may not come.
        more = {"metadata_max_age_ms": 1_000, "consumer_timeout_ms": TIMEOUT_S * 1_000}
        consumer = KafkaConsumer(TOPIC, group_id=GROUP, auto_offset_reset="earliest", **more, **settings)
        try:
            next(consumer)
        finally:
            consumer.close(autocommit=False)
    except PythonKafkaError as error:
        return type(error).__name__
    return DONE


@pytest.mark.behaviour("kafka-python", MATRIX)
def test_kafka_python_logs_in_or_is_refused_as_with_kafka(
    klamm_cluster: SecuredSide, kafka_cluster: SecuredSide
) -> None:
    check(by_steps(klamm_cluster, by_kafka_python), by_steps(kafka_cluster, by_kafka_python))


# Spark's connector, which is Java's producer in a task


@pytest.fixture
def spark(klamm_cluster: SecuredSide, kafka_cluster: SecuredSide) -> Iterator[Any]:
    from pyspark_klamm import local_session

    jars = ",".join(map(str, java_programs.spark_jars()))
    session = local_session("secured", settings={"spark.jars": jars})
    session.sparkContext.setLogLevel("OFF")
    tokens = [
        side.identity(Way.OAUTHBEARER, case).token_file.as_uri()
        for side in (klamm_cluster, kafka_cluster)
        for case in Case
    ]
    session._jvm.System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", ",".join(tokens))
    yield session
    session.stop()


def by_spark(spark: Any, one: Identity) -> str:
    from pyspark.errors import PySparkException

    settings = {**ways_in.java(one), "max.block.ms": "30000"}
    options = {f"kafka.{name}": text for name, text in settings.items()}
    frame = spark.range(1).selectExpr("'v' value")
    try:
        frame.write.format("kafka").options(**options).option("topic", TOPIC).save()
    except (PySparkException, Py4JJavaError) as error:
        return deepest_error(str(error))
    return DONE


def deepest_error(text: str) -> str:
    """The error of Kafka's client that a task's failure names last."""
    return re.findall(r"org\.apache\.kafka\.common\.(?:errors\.)?(\w+Exception)", text)[-1]


@pytest.mark.spark
@pytest.mark.behaviour('Spark\'s format("kafka")', MATRIX)
def test_spark_logs_in_or_is_refused_as_with_kafka(
    spark: Any, klamm_cluster: SecuredSide, kafka_cluster: SecuredSide
) -> None:
    ours, kafkas = (
        {(*cell, "produces"): by_spark(spark, side.identity(*cell)) for cell in CELLS}
        for side in (klamm_cluster, kafka_cluster)
    )
    check(ours, kafkas)


# Our own, at the gRPC listeners


def our_settings(side: SecuredSide, way: Way, case: Case) -> Mapping[str, Any]:
    one = side.identity(way, case)
    settings: dict[str, Any] = {**ways_in.java(one), "bootstrap.servers": side.grpc(way)}
    for name in ("ssl.truststore.type", "ssl.keystore.type"):
        settings.pop(name, None)
    if one.token:
        for name in ("sasl.jaas.config", "sasl.oauthbearer.token.endpoint.url", "sasl.login.callback.handler.class"):
            settings.pop(name)
        settings["sasl.oauthbearer.token.callback"] = lambda: one.token
    return settings


def by_klamm(side: SecuredSide, way: Way, case: Case, step: str) -> str:
    settings = our_settings(side, way, case)
    try:
        if step == "produces":
            with klamm.Producer(settings) as producer:
                producer.send(TOPIC, b"v").result(TIMEOUT_S)
            return DONE
        with klamm.Consumer({**settings, "group.id": GROUP, "auto.offset.reset": "earliest"}) as consumer:
            consumer.subscribe([TOPIC])
            until_s = time.monotonic() + TIMEOUT_S
            while not consumer.poll(100):
                assert time.monotonic() < until_s
    except klamm.KlammError as error:
        return type(error).__name__
    return DONE


def test_klamms_own_client_logs_in_or_gets_an_error_with_kafkas_name(klamm_cluster: SecuredSide) -> None:
    """Its errors have Kafka's names."""
    for way, case, step in STEPS:
        outcome = by_klamm(klamm_cluster, way, case, step)
        print(f"{way} | {case} | {step} | {outcome}")
        refused = "TopicAuthorizationFailedError" if step == "produces" else "GroupAuthorizationFailedError"
        at_the_door = "SslAuthenticationError" if way in (Way.SSL, Way.MTLS) else "SaslAuthenticationError"
        if (way, case) == (Way.MTLS, Case.EXPIRED):
            at_the_door = "ConfigError"  # it looks at its own certificate before it dials
        expected = {Case.RIGHT: DONE, Case.NO_ACL: refused}.get(case, at_the_door)
        assert outcome == expected, f"{way} {case} {step}"
