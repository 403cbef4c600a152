"""Tests which requests the access control lists allow to real clients that are known by certificate. Also tests which
errors the clients get for the others, with Klamm and with Apache Kafka.

The user `right` may produce, consume and use transactions. The users `writer` and `member` lack the right to the group
and to the topic respectively, and so cannot consume. The user `stranger` has no rights.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import ssl
import subprocess
from collections.abc import Awaitable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewTopic as AioNewTopic
from aiokafka.errors import KafkaError as AioKafkaError
from aiokafka.errors import for_code
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka import admin as confluent
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import NewTopic as PythonNewTopic
from kafka.errors import KafkaError as PythonKafkaError

from klamm.acls import AclBinding, AclBindingFilter
from tests.support import certificates, java_programs
from tests.support.aiokafka_loop import run_aiokafka
from tests.support.apache_kafka import ApacheKafka
from tests.support.authorized_cluster import MAPPING_RULES, AuthorizedCluster, authorized_cluster
from tests.support.cli_runner import KlammCommand

pytestmark = [pytest.mark.clients, pytest.mark.timeout(600)]
TIMEOUT_S = 120
RIGHTS = "does what access control lists allow, and names what they refuse"
TOPIC, GROUP, ID = "orders", "billing", "shipper"
TOPIC_REFUSED, GROUP_REFUSED, CLUSTER_REFUSED, ID_REFUSED = 29, 30, 31, 53
"""Kafka's codes of errors."""
EXPECTED: Final[Mapping[tuple[str, str], int | None]] = {
    ("right", "produces"): None,
    ("right", "begins"): None,
    ("right", "consumes"): None,
    ("right", "lists"): None,
    ("right", "creates"): TOPIC_REFUSED,
    ("writer", "produces"): None,
    ("writer", "consumes"): GROUP_REFUSED,
    ("member", "consumes"): TOPIC_REFUSED,
    ("stranger", "produces"): TOPIC_REFUSED,
    ("stranger", "begins"): ID_REFUSED,
    ("stranger", "creates"): TOPIC_REFUSED,
    ("stranger", "shows"): CLUSTER_REFUSED,
}
"""The outcome of each step of each user: nothing, or a code."""


class Side:
    """A cluster whose users come by certificate."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self.bootstrap = bootstrap
        self._directory = directory

    def stores(self, who: str) -> certificates.Stores:
        return certificates.write_stores(self._directory / f"client-{who}", certificates.client(who))

    def librdkafka(self, who: str) -> dict[str, str]:
        stores = self.stores(who)
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SSL",
            "ssl.ca.location": str(stores.truststore),
            "ssl.certificate.location": str(stores.keystore),
            "ssl.key.location": str(stores.keystore),
        }

    def java(self, who: str) -> Path:
        """Writes a file of settings for this user, beside those of other users."""
        stores = self.stores(who)
        path = self._directory / f"{who}.properties"
        lines = [
            f"bootstrap.servers={self.bootstrap}",
            "security.protocol=SSL",
            "ssl.truststore.type=PEM",
            f"ssl.truststore.location={stores.truststore}",
            "ssl.keystore.type=PEM",
            f"ssl.keystore.location={stores.keystore}",
        ]
        path.write_text("\n".join([*lines, ""]))
        return path

    def aiokafka(self, who: str) -> dict[str, Any]:
        stores = self.stores(who)
        context = ssl.create_default_context(cafile=stores.truststore)
        context.load_cert_chain(stores.keystore)
        return {"bootstrap_servers": self.bootstrap, "security_protocol": "SSL", "ssl_context": context}

    def kafka_python(self, who: str) -> dict[str, str]:
        stores = self.stores(who)
        return {
            "bootstrap_servers": self.bootstrap,
            "security_protocol": "SSL",
            "ssl_cafile": str(stores.truststore),
            "ssl_certfile": str(stores.keystore),
            "ssl_keyfile": str(stores.keystore),
        }


@pytest.fixture(scope="module")
def klamm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuthorizedCluster]:
    with authorized_cluster(tmp_path_factory.mktemp("rights")) as made:
        yield made


@pytest.fixture(scope="module")
def klamm_side(klamm: AuthorizedCluster) -> Side:
    return prepared(Side(klamm.bootstrap, klamm.directory))


@pytest.fixture(scope="module")
def kafka_side(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    """Apache Kafka: its own connections, and the test's, are anonymous."""
    directory = tmp_path_factory.mktemp("apache-kafka-rights")
    stores = certificates.write_stores(directory / "server", certificates.server("broker"))
    settings = {
        **stores.settings(),
        "ssl.keystore.type": "PEM",
        "ssl.truststore.type": "PEM",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SSL:SSL",
        "ssl.client.auth": "required",
        "ssl.principal.mapping.rules": MAPPING_RULES,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:admin",
    }
    kafka = ApacheKafka(directory, settings=settings, secured=["SSL"])
    try:
        kafka.start()
        yield prepared(Side(kafka.secured_bootstraps["SSL"], directory))
    finally:
        kafka.kill()


@pytest.fixture(params=["klamm", "kafka"])
def side(request: pytest.FixtureRequest) -> Side:
    made: Side = request.getfixturevalue(f"{request.param}_side")
    return made


def prepared(side: Side) -> Side:
    """Creates the topic and the rights of each user, and returns the side."""
    admin = confluent.AdminClient(side.librdkafka("admin"))
    for made in admin.create_topics([confluent.NewTopic(TOPIC, 1, 1)]).values():
        made.result(TIMEOUT_S)
    topic, group, transactional_id = (
        (confluent.ResourceType.TOPIC, TOPIC),
        (confluent.ResourceType.GROUP, GROUP),
        (confluent.ResourceType.TRANSACTIONAL_ID, ID),
    )
    write, read = confluent.AclOperation.WRITE, confluent.AclOperation.READ
    given = [
        ("right", write, topic),
        ("right", read, topic),
        ("right", read, group),
        ("right", write, transactional_id),
        ("writer", write, topic),
        ("member", read, group),
    ]
    bindings = [
        confluent.AclBinding(
            *resource,
            confluent.ResourcePatternType.LITERAL,
            f"User:{who}",
            "*",
            operation,
            confluent.AclPermissionType.ALLOW,
        )
        for who, operation, resource in given
    ]
    for created in admin.create_acls(bindings).values():
        created.result(TIMEOUT_S)
    return side


class NothingSeenError(Exception):
    """A list that is empty."""


# Kafka's own program


def kafka_acls(config: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    bootstrap = config.read_text().splitlines()[0].partition("=")[2]
    at = ["--bootstrap-server", bootstrap, "--command-config", str(config)]
    command = java_programs.command("org.apache.kafka.tools.AclCommand", *at, *arguments)
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


@pytest.mark.behaviour("Kafka's command-line tools", "access control lists: kafka-acls adds, lists and removes")
def test_kafka_acls_and_klamm_acls_make_the_same_entries(
    klamm: AuthorizedCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = Side(klamm.bootstrap, klamm.directory).java("admin")
    roles = ["--producer", "--consumer", "--topic", "t", "--group", "g", "--transactional-id", "x", "--idempotent"]
    prefixed = ["--producer", "--topic", "team-", "--transactional-id", "team-", "--idempotent"]
    theirs = ["--allow-principal", "User:theirs"]
    for arguments in ([*theirs, *roles], [*theirs, *prefixed, "--resource-pattern-type", "prefixed"]):
        added = kafka_acls(config, "--add", *arguments)
        assert added.returncode == 0, added.stdout + added.stderr
    settings = tmp_path / "klamm.properties"
    settings.write_text("".join(f"{name}={text}\n" for name, text in klamm.klamm("admin").items()))
    monkeypatch.setenv("KLAMM_COMMAND_CONFIG", str(settings))
    run = KlammCommand(klamm.grpc)
    run.ok("acls", "add", "User:ours", *roles)
    run.ok("acls", "add", "User:ours", *prefixed, "--prefixed")
    with klamm.admin() as admin:

        def entries(who: str) -> set[AclBinding]:
            found = admin.describe_acls(AclBindingFilter(principal=f"User:{who}"))
            return {entry._replace(principal="User:somebody") for entry in found}

        made = entries("ours")
        assert len(made) == 8 + 5
        assert entries("theirs") == made
        listed = kafka_acls(config, "--list", "--principal", "User:ours")
        assert listed.stdout.count("principal=User:ours") == len(made), listed.stdout + listed.stderr
        removed = kafka_acls(config, "--remove", "--force", *theirs, *roles)
        assert removed.returncode == 0, removed.stdout + removed.stderr
        run.ok("acls", "remove", "User:ours", *roles)
        assert entries("theirs") == entries("ours") < made


# Java


@pytest.mark.behaviour("Java", RIGHTS)
def test_java_is_allowed_and_refused_as_its_acls_say(side: Side) -> None:
    names = {
        None: "done",
        TOPIC_REFUSED: "TopicAuthorizationException",
        GROUP_REFUSED: "GroupAuthorizationException",
        CLUSTER_REFUSED: "ClusterAuthorizationException",
        ID_REFUSED: "TransactionalIdAuthorizationException",
    }
    for who, _ in EXPECTED:
        directory = side.java(who).parent
    asked = [f"{who}:{step}" for who, step in (*EXPECTED, ("stranger", "lists"))]
    command = java_programs.command("clients.Rights", str(directory), TOPIC, GROUP, ID, *asked)
    run = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert dict(line.split() for line in run.stdout.splitlines() if ":" in line.split(" ")[0]) == {
        **{f"{who}:{step}": names[code] for (who, step), code in EXPECTED.items()},
        "stranger:lists": "NothingSeen",
    }, run.stdout + run.stderr


# librdkafka


def confluent_step(side: Side, who: str, step: str) -> int | None:
    settings = side.librdkafka(who)
    try:
        match step:
            case "produces":
                return confluent_produces(Producer(settings))
            case "begins":
                producer = Producer({**settings, "transactional.id": ID})
                producer.init_transactions(TIMEOUT_S)
                producer.begin_transaction()
                producer.produce(TOPIC, b"v")
                producer.commit_transaction(TIMEOUT_S)
            case "consumes":
                return confluent_consumes(Consumer({**settings, "group.id": GROUP, "auto.offset.reset": "earliest"}))
            case "creates" | "lists" | "shows":
                confluent_administers(confluent.AdminClient(settings), step)
    except KafkaException as error:
        code: int = error.args[0].code()
        return code
    return None


def confluent_administers(admin: confluent.AdminClient, step: str) -> None:
    match step:
        case "creates":
            for made in admin.create_topics([confluent.NewTopic(f"{TOPIC}-new", 1, 1)]).values():
                made.result(TIMEOUT_S)
        case "lists":
            if not admin.list_topics(timeout=TIMEOUT_S).topics:
                raise NothingSeenError
        case "shows":
            everything = confluent.AclBindingFilter(
                confluent.ResourceType.ANY,
                None,
                confluent.ResourcePatternType.ANY,
                None,
                None,
                confluent.AclOperation.ANY,
                confluent.AclPermissionType.ANY,
            )
            admin.describe_acls(everything).result(TIMEOUT_S)


def confluent_produces(producer: Producer) -> int | None:
    heard: list[KafkaError | None] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        heard.append(error)

    producer.produce(TOPIC, b"v", on_delivery=on_delivery)
    assert producer.flush(TIMEOUT_S) == 0
    (error,) = heard
    return None if error is None else error.code()


def confluent_consumes(consumer: Consumer) -> int | None:
    consumer.subscribe([TOPIC])
    try:
        (got,) = consumer.consume(1, TIMEOUT_S)
        error = got.error()
        if error is None:
            consumer.commit(asynchronous=False)
        return None if error is None else error.code()
    finally:
        consumer.close()


@pytest.mark.behaviour("confluent-kafka", RIGHTS)
def test_confluent_is_allowed_and_refused_as_its_acls_say(side: Side) -> None:
    # librdkafka keeps to itself that DescribeAcls was refused, and shows no entries.
    expected = {**EXPECTED, ("stranger", "shows"): None}
    assert {asked: confluent_step(side, *asked) for asked in expected} == expected
    with pytest.raises(NothingSeenError):
        confluent_step(side, "stranger", "lists")


@pytest.mark.behaviour("kcat", RIGHTS)
@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat not found: make test and make clients install it")
def test_kcat_is_allowed_and_refused_as_its_acls_say(side: Side) -> None:
    def kcat(who: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        options = [f"-X{name}={text}" for name, text in side.librdkafka(who).items()]
        command = ["kcat", *options, *arguments]
        return subprocess.run(command, input=b"v\n", capture_output=True, timeout=TIMEOUT_S, check=False)

    assert kcat("right", "-t", TOPIC, "-P").returncode == 0
    refused = kcat("stranger", "-t", TOPIC, "-P")
    assert refused.returncode == 1
    assert b"Topic authorization failed" in refused.stderr
    assert TOPIC.encode() in kcat("right", "-L").stdout
    assert TOPIC.encode() not in kcat("stranger", "-L").stdout


# aiokafka


async def aiokafka_step(side: Side, who: str, step: str) -> None:
    settings = side.aiokafka(who)
    match step:
        case "produces":
            await aiokafka_produces(AIOKafkaProducer(**settings))
        case "begins":
            await aiokafka_produces(AIOKafkaProducer(**settings, transactional_id=ID), transactional=True)
        case "consumes":
            consumer = AIOKafkaConsumer(TOPIC, group_id=GROUP, auto_offset_reset="earliest", **settings)
            try:
                await consumer.start()
                await consumer.getone()
                await consumer.commit()
            finally:
                await consumer.stop()
        case "creates" | "lists" | "shows":
            admin = AIOKafkaAdminClient(**settings)
            try:
                await admin.start()
                await aiokafka_administers(admin, step)
            finally:
                await admin.close()


async def aiokafka_produces(producer: AIOKafkaProducer, *, transactional: bool = False) -> None:
    try:
        await producer.start()
        async with producer.transaction() if transactional else contextlib.nullcontext():
            await producer.send_and_wait(TOPIC, b"v")
    finally:
        await producer.stop()


async def aiokafka_administers(admin: AIOKafkaAdminClient, step: str) -> None:
    if step == "lists":
        if not await admin.list_topics():
            raise NothingSeenError
        return
    assert step == "creates"
    answer = await admin.create_topics([AioNewTopic(f"{TOPIC}-new", 1, 1)])
    for _, code, *_ in answer.topic_errors:
        if code:
            raise for_code(code)


@pytest.mark.behaviour("aiokafka", RIGHTS)
def test_aiokafka_is_allowed_and_refused_as_its_acls_say(side: Side) -> None:
    async def code_of(step: Awaitable[None]) -> int | None:
        try:
            await asyncio.wait_for(step, TIMEOUT_S)
        except AioKafkaError as error:
            return int(error.errno)
        return None

    async def every() -> dict[tuple[str, str], int | None]:
        return {asked: await code_of(aiokafka_step(side, *asked)) for asked in offered}

    # aiokafka knows nothing of ACLs.
    offered = {asked: code for asked, code in EXPECTED.items() if asked[1] != "shows"}
    assert run_aiokafka(every(), TIMEOUT_S) == offered
    with pytest.raises(NothingSeenError):
        run_aiokafka(aiokafka_step(side, "stranger", "lists"), TIMEOUT_S)


# kafka-python


def kafka_python_step(side: Side, who: str, step: str) -> int | None:
    settings: dict[str, Any] = side.kafka_python(who)
    try:
        match step:
            case "produces" | "begins":
                kafka_python_produces(settings, transactional=step == "begins")
            case "consumes":
                kafka_python_consumes(settings)
            case "creates" | "lists" | "shows":
                admin = KafkaAdminClient(**settings)
                try:
                    kafka_python_administers(admin, step)
                finally:
                    admin.close()
    except PythonKafkaError as error:
        return int(error.errno)
    return None


def kafka_python_produces(settings: dict[str, Any], *, transactional: bool) -> None:
    producer = KafkaProducer(**settings, **({"transactional_id": ID} if transactional else {}))
    try:
        if transactional:
            producer.init_transactions()
            producer.begin_transaction()
        producer.send(TOPIC, b"v").get(TIMEOUT_S)
        if transactional:
            producer.commit_transaction()
    finally:
        producer.close(timeout=0)


def kafka_python_consumes(settings: dict[str, Any]) -> None:
    # A short age of metadata: subscribed while an answer is on its way, it forgets to ask for its topics'.
    consumer = KafkaConsumer(
        TOPIC,
        group_id=GROUP,
        auto_offset_reset="earliest",
        metadata_max_age_ms=1_000,
        consumer_timeout_ms=TIMEOUT_S * 1_000,
        **settings,
    )
    try:
        next(consumer)
        consumer.commit()
    finally:
        consumer.close(autocommit=False)


def kafka_python_administers(admin: KafkaAdminClient, step: str) -> None:
    match step:
        case "creates":
            admin.create_topics([PythonNewTopic(f"{TOPIC}-new", 1, 1)])
        case "lists":
            if not admin.list_topics():
                raise NothingSeenError
        case "shows":
            from kafka.admin import ACLFilter, ACLOperation, ACLPermissionType, ResourcePatternFilter, ResourceType
            from kafka.admin import ACLResourcePatternType as PatternType

            anything = ResourcePatternFilter(ResourceType.ANY, None, PatternType.ANY)
            _, refused = admin.describe_acls(ACLFilter(None, None, ACLOperation.ANY, ACLPermissionType.ANY, anything))
            if refused is not None and getattr(refused, "errno", 0):
                raise refused


@pytest.mark.behaviour("kafka-python", RIGHTS)
def test_kafka_python_is_allowed_and_refused_as_its_acls_say(side: Side) -> None:
    # A consumer that may not see its topic only logs it, every time that it asks.
    raised = {asked: code for asked, code in EXPECTED.items() if asked != ("member", "consumes")}
    assert {asked: kafka_python_step(side, *asked) for asked in raised} == raised
    with pytest.raises(NothingSeenError):
        kafka_python_step(side, "stranger", "lists")
