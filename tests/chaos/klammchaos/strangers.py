"""Strangers that try all the time to get in, at the listeners for clients and at that of the servers. They must not
succeed.

Each stranger has short time-outs. It gets a refusal, or no answer, because servers die and are cut off during the run.
Any other answer is a violation. In the end, each stranger must have been refused explicitly.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from klamm.admin import AsyncAdmin
from klamm.consumer import AsyncConsumer
from klamm.errors import AuthenticationError, BrokerError, ErrorCode, KlammError
from klamm.model import TopicPartition
from klamm.producer import AsyncProducer
from tests.chaos.klammchaos.partition_cluster import DEADLINE_S, PRODUCER, TOPIC
from tests.chaos.klammchaos.secured_cluster import OUTSIDER, SecuredCluster
from tests.support.violation import Violation

PATIENCE_MS: Final = 4_000
PAUSE_S: Final = 1.0
"""The pause between two tries of the same stranger."""
ATTEMPT_S: Final = DEADLINE_S
"""The longest time that one try may take."""
WRONG: Final = {"sasl.password": "guessed"}
_DENIED: Final = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
_KAFKA_REFUSALS: Final = (KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError.TOPIC_AUTHORIZATION_FAILED)


class GotInError(Violation):
    """Raised if a stranger was allowed an operation, or learned a name."""


class Stranger(NamedTuple):
    """A client without access. `knock` tries to get in, and returns whether it was refused explicitly. It raises
    GotInError."""

    name: str
    knock: Callable[[], Awaitable[bool]]


class Strangers:
    """Makes all strangers try again and again, each at its own pace."""

    def __init__(self, strangers: Sequence[Stranger], *, pause_s: float = PAUSE_S) -> None:
        self._strangers = strangers
        self._pause_s = pause_s
        self._refused: Counter[str] = Counter()
        self._tried: Counter[str] = Counter()

    async def run(self, written: asyncio.Event) -> None:
        """Runs until `written` is set and every stranger was refused explicitly. Raises GotInError."""
        await asyncio.gather(*(self._try(stranger, written) for stranger in self._strangers))
        for stranger in self._strangers:
            print(
                f"refused: {stranger.name}, {self._refused[stranger.name]} of {self._tried[stranger.name]} times",
                flush=True,
            )

    async def _try(self, stranger: Stranger, written: asyncio.Event) -> None:
        while not (written.is_set() and self._refused[stranger.name]):
            async with asyncio.timeout(ATTEMPT_S):
                self._refused[stranger.name] += await stranger.knock()
            self._tried[stranger.name] += 1
            await asyncio.sleep(self._pause_s)


def strangers_of(cluster: SecuredCluster) -> Sequence[Stranger]:
    """Returns the strangers, each with a different credential or right that it lacks."""
    servers = {"bootstrap.servers": cluster.addresses("GRPC_SSL"), "security.protocol": "SSL"}
    trust = {"ssl.truststore.location": str(cluster.certificates.stores(OUTSIDER).truststore)}
    own, foreign = cluster.certificates.stores(OUTSIDER), cluster.certificates.foreign_stores("broker-1")
    wrong_password = {**cluster.client(PRODUCER), **WRONG}
    foreign_certificate = {**cluster.client(PRODUCER), **foreign.settings()}
    outsider, kafka_outsider = cluster.client(OUTSIDER), cluster.kafka_client(OUTSIDER)
    plain = {"bootstrap.servers": cluster.addresses("SASL_SSL"), "security.protocol": "PLAINTEXT"}

    def asks(name: str, settings: Mapping[str, str]) -> Stranger:
        return Stranger(name, lambda: _asks_for_names(settings))

    return (
        asks("a foreign certificate with a server's name, at the servers' listener", {**servers, **foreign.settings()}),
        asks("no certificate, at the servers' listener", {**servers, **trust}),
        asks("a client's certificate and no rights, at the servers' listener", {**servers, **own.settings()}),
        asks("a foreign certificate and the right password", foreign_certificate),
        asks("a wrong password", wrong_password),
        asks("a password and no rights", outsider),
        Stranger("a password and no rights, writes", lambda: _writes(outsider)),
        Stranger("a password and no rights, reads", lambda: _reads(outsider)),
        Stranger("a wrong password, by Kafka", lambda: _asks_kafka({**cluster.kafka_client(PRODUCER), **WRONG})),
        Stranger("a password and no rights, by Kafka", lambda: _asks_kafka(kafka_outsider)),
        Stranger("a password and no rights, writes by Kafka", lambda: _writes_kafka(kafka_outsider)),
        Stranger("no TLS, by Kafka", lambda: _asks_kafka(plain, silence_refuses=True)),
    )


async def _refusal(call: Awaitable[Any]) -> bool | None:
    """Returns True if the call was refused explicitly, False if it failed otherwise, and None if it was answered."""
    try:
        await call
    except AuthenticationError:
        return True
    except BrokerError as error:
        return error.code in _DENIED
    except KlammError:
        return False
    return None


def _patient(settings: Mapping[str, str]) -> dict[str, str]:
    return {
        **settings,
        "default.api.timeout.ms": str(PATIENCE_MS),
        "request.timeout.ms": str(PATIENCE_MS),
    }


async def _asks_for_names(settings: Mapping[str, str]) -> bool:
    """Asks for the list of topics, which is empty for a user without rights. Then asks for the topic by its name, and
    for the access control lists."""
    async with AsyncAdmin(_patient(settings)) as admin:
        try:
            names = await admin.list_topics(include_internal=True)
        except KlammError as error:
            return isinstance(error, AuthenticationError)
        if names:
            raise GotInError(f"a stranger sees the names {sorted(names)}")
        asked = [
            await _refusal(call)
            for call in (
                admin.describe_topics([TOPIC]),
                admin.describe_acls(),
                admin.describe_user_scram_credentials(),
                admin.delete_topics([TOPIC]),
            )
        ]
    if None in asked:
        raise GotInError(f"a stranger was answered: {asked}")
    return all(asked)


async def _writes(settings: Mapping[str, str]) -> bool:
    producer = AsyncProducer(
        {**settings, "request.timeout.ms": str(PATIENCE_MS)},
        delivery_timeout_ms=2 * PATIENCE_MS,
        max_block_ms=PATIENCE_MS,
    )

    async def write() -> None:
        await (await producer.send(TOPIC, b"stranger", partition=0))

    try:
        refused = await _refusal(write())
    finally:
        await producer.close(timeout=0)
    if refused is None:
        raise GotInError("a stranger has written")
    return refused


async def _reads(settings: Mapping[str, str]) -> bool:
    partition = TopicPartition(TOPIC, 0)

    async def read() -> Any:
        async with AsyncConsumer(_patient(settings)) as consumer:
            consumer.assign([partition])
            consumer.seek(partition, 0)
            if not await consumer.poll(PATIENCE_MS):
                raise KlammError("nothing came")

    refused = await _refusal(read())
    if refused is None:
        raise GotInError("a stranger has read")
    return refused


async def _asks_kafka(settings: Mapping[str, str], *, silence_refuses: bool = False) -> bool:
    """Asks like `_asks_for_names`. A client that does not speak TLS never gets an answer, because no listener answers
    it."""
    told: list[KafkaError] = []

    def ask() -> Any:
        admin = AdminClient({**settings, "error_cb": told.append, "log_level": "0"})
        try:
            return admin.list_topics(timeout=PATIENCE_MS / 1000).topics
        finally:
            admin.poll(0)

    try:
        names = await asyncio.to_thread(ask)
    except KafkaException as error:
        return silence_refuses or any(one.code() in _KAFKA_REFUSALS for one in (*told, error.args[0]))
    if names:
        raise GotInError(f"a stranger sees the names {sorted(names)}")
    return True


async def _writes_kafka(settings: Mapping[str, str]) -> bool:
    told: list[KafkaError | None] = []

    def write() -> None:
        producer = Producer({**settings, "message.timeout.ms": str(PATIENCE_MS), "log_level": "0"})
        producer.produce(TOPIC, b"stranger", on_delivery=lambda error, _: told.append(error))
        producer.flush(2 * PATIENCE_MS / 1000)

    await asyncio.to_thread(write)
    # librdkafka's errors cannot be compared with None.
    if any(one is None for one in told):
        raise GotInError("a stranger has written")
    return any(one is not None and one.code() in _KAFKA_REFUSALS for one in told)
