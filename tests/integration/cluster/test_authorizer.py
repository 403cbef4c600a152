"""Tests access control lists with both protocols of a cluster that knows every client by its certificate."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient

from klamm import Producer as KlammProducer
from klamm.acls import CLUSTER_NAME, AclBindingFilter, AclOperation, ResourceType
from klamm.admin import NewTopic
from klamm.errors import BrokerError, ErrorCode
from klamm_broker.kafka.api import ApiKey
from tests.support.authorized_cluster import AuthorizedCluster, allow, authorized_cluster
from tests.support.waiting import patience, wait_until

TOPIC, GROUP = "orders-canary", "billing-canary"
PRODUCES = allow("producer", AclOperation.WRITE, ResourceType.TOPIC, TOPIC)
CONSUMES = [
    allow("consumer", AclOperation.READ, ResourceType.TOPIC, TOPIC),
    allow("consumer", AclOperation.READ, ResourceType.GROUP, GROUP),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuthorizedCluster]:
    with authorized_cluster(tmp_path_factory.mktemp("authorizer")) as made:
        with made.admin() as admin:
            admin.create_acls([PRODUCES, *CONSUMES])
            admin.create_topics([NewTopic(TOPIC, partition_count=1, replication_factor=1)])
        yield made


def produced(producer: Producer, topic: str = TOPIC) -> KafkaError | None:
    """Produces one record. Returns its error, or None."""
    heard: list[KafkaError | None] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        heard.append(error)

    producer.produce(topic, b"v", on_delivery=on_delivery)
    assert producer.flush(patience()) == 0
    return heard[0]


def test_a_producer_and_a_consumer_do_only_what_their_acls_allow(cluster: AuthorizedCluster) -> None:
    producer = Producer(cluster.kafka("producer"))
    wait_until(lambda: produced(producer) is None, cluster.logs)
    consumer = Consumer({**cluster.kafka("consumer"), "group.id": GROUP, "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    # The coordinator may learn the entries later than the broker.
    got = wait_until(lambda: [one for one in consumer.consume(1, 1.0) if one.error() is None], cluster.logs)
    assert [one.value() for one in got] == [b"v"]
    consumer.commit(asynchronous=False)
    consumer.close()
    refused = produced(Producer(cluster.kafka("consumer")))
    assert refused is not None
    assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    other = Consumer({**cluster.kafka("producer"), "group.id": GROUP})
    other.subscribe([TOPIC])
    (told,) = other.consume(1, patience())
    other.close()
    error = told.error()
    assert error is not None
    assert error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED


def test_a_client_without_acls_sees_no_topic_and_no_group(cluster: AuthorizedCluster) -> None:
    kafka = AdminClient(cluster.kafka("stranger"))
    assert not kafka.list_topics(timeout=patience()).topics
    assert not kafka.list_consumer_groups(request_timeout=patience()).result().valid
    refused = produced(Producer(cluster.kafka("stranger")))
    assert refused is not None
    assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    with cluster.admin("stranger") as admin:
        assert not list(admin.list_topics())
        with pytest.raises(BrokerError) as caught:
            admin.describe_acls()
        assert caught.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        with pytest.raises(BrokerError) as caught:
            admin.create_acls([allow("stranger", AclOperation.ALL, ResourceType.TOPIC, TOPIC)])
        assert caught.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_a_deleted_acl_ends_writes_over_kafkas_protocol_and_over_grpc(cluster: AuthorizedCluster) -> None:
    who = f"temporary-{uuid.uuid4().hex[:8]}"
    allowed = allow(who, AclOperation.WRITE, ResourceType.TOPIC, TOPIC)
    with cluster.admin() as admin:
        admin.create_acls([allowed])
        by_kafka = Producer({**cluster.kafka(who), "linger.ms": 0})
        with KlammProducer({**cluster.klamm(who), "linger.ms": "0"}) as by_grpc:
            wait_until(lambda: produced(by_kafka) is None, cluster.logs)
            by_grpc.send(TOPIC, b"v").result(patience())
            admin.delete_acls([AclBindingFilter(principal=f"User:{who}")])
            refused = wait_until(lambda: produced(by_kafka), cluster.logs)
            assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
            with pytest.raises(BrokerError) as caught:
                by_grpc.send(TOPIC, b"v").result(patience())
            assert caught.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_a_client_learns_the_size_of_a_topic_that_it_created_only_with_describe_configs(
    cluster: AuthorizedCluster,
) -> None:
    """Kafka's answer to other clients has an error in place of the configs."""
    with cluster.admin() as admin:
        for who in ("maker", "reader"):
            admin.create_acls([allow(who, AclOperation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME)])
        admin.create_acls([allow("reader", AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, "made-by-reader")])

    def created(who: str) -> tuple[int, int, int, int]:
        name = f"made-by-{who}"
        topic = {"name": name, "num_partitions": 2, "replication_factor": 1, "assignments": [], "configs": []}
        with cluster.wire(who) as wire:
            asked = {"topics": [topic], "timeout": 30_000, "validate_only": False}
            [one] = wire.ask(ApiKey.CREATE_TOPICS, 7, asked).topics
        assert one.error_code.name == "none", one
        return one.topic_config_error_code, one.num_partitions, one.replication_factor, min(1, len(one.configs))

    assert created("maker") == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1, -1, 0)
    assert created("reader") == (ErrorCode.NONE, 2, 1, 1)
