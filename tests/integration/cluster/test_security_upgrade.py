"""Tests a plain-text cluster that becomes a secured one by rolling restarts, while clients of both kinds work.

The clients are ours and librdkafka's.
"""

from __future__ import annotations

import pathlib
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import confluent_kafka
import pytest
from confluent_kafka import admin as confluent_admin

from klamm import Admin, Consumer, Producer
from klamm.acls import AclBinding, AclOperation, AclPermissionType, PatternType, ResourceType
from klamm.admin import NewTopic, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from klamm.errors import AuthenticationError, BrokerError, ErrorCode, KlammError
from tests.support.upgraded_cluster import HOST, PASSWORD, USER, Step, UpgradedCluster
from tests.support.waiting import patience, wait_until

OURS, KAFKAS = "ours", "kafkas"
PARTITIONS: Final = 2
INTERVAL_S: Final = 0.1
"""The pause of each producer between records. It leaves the servers some CPU on two cores."""
IMPATIENT: Final = {"default.api.timeout.ms": "3000", "request.timeout.ms": "3000"}


class Load:
    """One producer and one consumer of a topic.

    They stop at `pause` and continue with other settings where they stopped.
    """

    def __init__(self, topic: str, cluster: UpgradedCluster) -> None:
        self.topic = topic
        self._cluster = cluster
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self.sent = 0
        self.acknowledged: list[int] = []
        self.read: list[int] = []
        self.failed: list[str] = []
        """What the client said of a record, or of what it read, that it could not mend itself."""

    def begin(self, settings: Mapping[str, Any]) -> None:
        self._stopping.clear()
        self._threads = [
            threading.Thread(target=self._guarded, args=(run, dict(settings)), name=f"{self.topic}-{run.__name__}")
            for run in (self.produce, self.consume)
        ]
        for thread in self._threads:
            thread.start()

    def pause(self) -> None:
        """Stops the clients. Waits until all records are acknowledged and all read records are committed."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(patience())
            assert not thread.is_alive(), self._cluster.logs()

    def change_to(self, settings: Mapping[str, Any]) -> None:
        self.pause()
        self.begin(settings)

    def wait_for_progress(self) -> None:
        """Waits until a record was read that was sent after this call."""
        sent = self.sent
        wait_until(
            lambda: self.failed or any(number >= sent for number in self.read[-1_000:]),
            lambda: f"{self.topic}: nothing from {sent} on was read\n{self._cluster.logs()}",
        )
        self.check()

    def check(self) -> None:
        assert not self.failed, f"{self.failed[:5]}\n{self._cluster.logs()}"

    def _guarded(self, run: Callable[[dict[str, Any]], None], settings: dict[str, Any]) -> None:
        try:
            run(settings)
        except Exception as error:  # noqa: BLE001 - the test tells it
            self.failed.append(repr(error))

    def produce(self, settings: dict[str, Any]) -> None:
        raise NotImplementedError

    def consume(self, settings: dict[str, Any]) -> None:
        raise NotImplementedError

    def next_numbers(self) -> Iterator[int]:
        """Yields the next number to send, until the load is paused."""
        while not self._stopping.wait(INTERVAL_S):
            yield self.sent
            self.sent += 1

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def on_delivery(self, number: int, error: object) -> None:
        if error is None:
            self.acknowledged.append(number)
        else:
            self.failed.append(f"record {number}: {error}")


class OurLoad(Load):
    """The load of our own clients, over gRPC."""

    def produce(self, settings: dict[str, Any]) -> None:
        with Producer({**settings, "linger.ms": "0"}) as producer:
            for number in self.next_numbers():
                producer.send(
                    self.topic,
                    b"%d" % number,
                    partition=number % PARTITIONS,
                    on_delivery=lambda _, error, number=number: self.on_delivery(number, error),
                )

    def consume(self, settings: dict[str, Any]) -> None:
        with Consumer({**settings, "group.id": self.topic, "auto.offset.reset": "earliest"}) as consumer:
            consumer.subscribe([self.topic])
            while not self.is_stopping:
                for records in consumer.poll(200).values():
                    self.read.extend(int(record.value) for record in records)


class KafkaLoad(Load):
    """The load of librdkafka's clients."""

    def produce(self, settings: dict[str, Any]) -> None:
        producer = confluent_kafka.Producer({**settings, "enable.idempotence": True, "linger.ms": 1})
        for number in self.next_numbers():
            producer.produce(
                self.topic,
                b"%d" % number,
                partition=number % PARTITIONS,
                on_delivery=lambda error, _, number=number: self.on_delivery(number, error),
            )
            producer.poll(0)
        assert producer.flush(patience()) == 0, "records without an answer"

    def consume(self, settings: dict[str, Any]) -> None:
        consumer = confluent_kafka.Consumer({**settings, "group.id": self.topic, "auto.offset.reset": "earliest"})
        consumer.subscribe([self.topic])
        while not self.is_stopping:
            for message in consumer.consume(1_000, 0.2):
                error = message.error()
                if error is None:
                    self.read.append(int(message.value()))
                elif not error.retriable():
                    self.failed.append(f"read: {error}")
        consumer.close()


@pytest.fixture
def cluster(tmp_path: pathlib.Path) -> Iterator[UpgradedCluster]:
    made = UpgradedCluster(tmp_path)
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.mark.slow
@pytest.mark.timeout(1_200)  # the test waits for 24 starts of servers, one after the other
def test_rolling_restarts_secure_a_cluster_under_load_without_losing_records(cluster: UpgradedCluster) -> None:
    loads = [OurLoad(OURS, cluster), KafkaLoad(KAFKAS, cluster)]
    create_topics(cluster)
    ours, kafkas = loads
    ours.begin(cluster.klamm(Step.PLAIN))
    kafkas.begin(cluster.kafka(Step.PLAIN))
    try:
        for step in (Step.LISTENERS, Step.SWITCHED):
            cluster.roll(step)
            for load in loads:
                load.wait_for_progress()
        give_rights(cluster)
        wait_until(lambda: is_let_in(cluster), cluster.logs)
        ours.change_to(cluster.klamm(Step.CLOSED))
        kafkas.change_to(cluster.kafka(Step.CLOSED))
        for load in loads:
            load.wait_for_progress()
        cluster.roll(Step.CLOSED)
        for load in loads:
            load.wait_for_progress()
    finally:
        for load in loads:
            load.pause()
    for load in loads:
        load.check()
        assert sorted(load.acknowledged) == list(range(load.sent))
        assert logged(cluster, load.topic) == [
            list(range(number, load.sent, PARTITIONS)) for number in range(PARTITIONS)
        ]
    check_that_strangers_get_nothing(cluster)


def create_topics(cluster: UpgradedCluster) -> None:
    admin = confluent_admin.AdminClient(cluster.kafka(Step.PLAIN))
    for future in admin.create_topics(
        [confluent_admin.NewTopic(name, PARTITIONS, 2) for name in (OURS, KAFKAS)]
    ).values():
        future.result(patience())


def give_rights(cluster: UpgradedCluster) -> None:
    """Creates the entries and users while every client may still do everything."""
    info = ScramCredentialInfo(ScramMechanism.SHA_512, 4096)
    resources = [(kind, name) for kind in (ResourceType.TOPIC, ResourceType.GROUP) for name in (OURS, KAFKAS)]
    with Admin(cluster.klamm(Step.SWITCHED)) as admin:
        admin.create_acls([allow(USER, AclOperation.ALL, kind, name) for kind, name in resources])
        admin.alter_user_scram_credentials(
            [UserScramCredentialUpsertion(user, info, PASSWORD) for user in (USER, "admin")]
        )


def is_let_in(cluster: UpgradedCluster) -> bool:
    """Returns True if the users can log in at every server.

    Servers then have their rights as well, which came first.
    """
    ours, kafkas = cluster.klamm(Step.CLOSED), cluster.kafka(Step.CLOSED)
    try:
        for node in cluster.nodes:
            if node.kind == "broker":
                with Admin({**ours, "bootstrap.servers": f"{HOST}:{node.clients}"}) as admin:
                    admin.list_topics()
                    admin.list_groups()
                at_broker = {**kafkas, "bootstrap.servers": f"{HOST}:{node.kafka}"}
                confluent_admin.AdminClient(at_broker).list_topics(timeout=5)
    except (AuthenticationError, confluent_kafka.KafkaException):
        return False
    return True


def allow(user: str, operation: AclOperation, kind: ResourceType, name: str) -> AclBinding:
    return AclBinding(kind, name, PatternType.LITERAL, f"User:{user}", "*", operation, AclPermissionType.ALLOW)


def logged(cluster: UpgradedCluster, topic: str) -> list[list[int]]:
    """Returns the numbers in the log of each partition."""
    consumer = confluent_kafka.Consumer({**cluster.kafka(Step.CLOSED), "group.id": topic, "enable.auto.commit": False})
    partitions = [confluent_kafka.TopicPartition(topic, number, 0) for number in range(PARTITIONS)]
    ends = [consumer.get_watermark_offsets(partition, patience())[1] for partition in partitions]
    consumer.assign(partitions)
    found: list[list[int]] = [[] for _ in partitions]

    def take() -> bool:
        for message in consumer.consume(1_000, 0.2):
            assert message.error() is None, message.error()
            found[message.partition()].append(int(message.value()))
        return [len(each) for each in found] == ends

    wait_until(take, lambda: f"{topic}: {[len(each) for each in found]} of {ends}")
    consumer.close()
    return found


def check_that_strangers_get_nothing(cluster: UpgradedCluster) -> None:
    """Checks that no plain-text listener is left, and that other listeners refuse plain text and missing passwords."""
    for node in cluster.nodes:
        for port in (node.plain, node.kafka_plain):
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((HOST, port), patience())
        for port in (node.internal, node.clients):
            with pytest.raises(KlammError), Admin({"bootstrap.servers": f"{HOST}:{port}", **IMPATIENT}) as admin:
                admin.list_topics()
    settings = cluster.klamm(Step.CLOSED)
    without = {name: settings[name] for name in ("bootstrap.servers", "ssl.truststore.location")}
    with pytest.raises(AuthenticationError), Admin({**without, "security.protocol": "SSL", **IMPATIENT}) as admin:
        admin.list_topics()
    with Admin(cluster.klamm(Step.CLOSED)) as admin:
        assert sorted(admin.list_topics()) == [KAFKAS, OURS]
        with pytest.raises(BrokerError) as refused:
            admin.create_topics([NewTopic("another", 1)])
        assert refused.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
