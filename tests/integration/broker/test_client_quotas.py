"""Tests client quotas over a Kafka listener of a real cluster: the throttle times and the resulting rates.

`bench/client_quotas.py` measures the rates over 30 s for 1, 10 and 100 connections.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from klamm import Admin, Consumer, NewTopic, Producer, TopicPartition
from klamm.admin import ClientQuotaAlteration, ClientQuotaEntity
from klamm.errors import EXCEPTIONS, ErrorCode
from klamm.records.encoder import encode_batch
from klamm_broker.kafka.api import ApiKey
from tests.support.kafka_wire import KafkaWire
from tests.support.klamm_process import KlammProcess, running_cluster
from tests.support.waiting import patience, wait_until

TOPIC = "bounded"
BATCH_BYTES = 10_000
USER = {"user": "ANONYMOUS"}
CLIENT = {"client-id": "wire"}
BOTH = {**USER, **CLIENT}
OURS = {"client-id": "ours"}
BATCH = bytes(encode_batch([(1, None, bytes(BATCH_BYTES), ())]))
NOTHING = timedelta()
SetQuotas = Callable[..., None]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KlammProcess]:
    with running_cluster(Path(tmp_path_factory.mktemp("client-quotas"))) as running:
        yield running


@pytest.fixture(scope="module")
def admin(cluster: KlammProcess) -> Iterator[Admin]:
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(TOPIC, 1, 1)])
        with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            producer.send(TOPIC, b"the partition has a leader").result(patience())
        yield admin


@pytest.fixture
def set_quotas(cluster: KlammProcess, admin: Admin) -> Iterator[SetQuotas]:
    """Yields a function that sets the quotas of an entity and waits until the broker applies them.

    The fixture removes all quotas afterwards. The broker remembers recorded requests for eleven seconds, so each test
    has an entity of its own.
    """

    def set_(entity: ClientQuotaEntity, quotas: Mapping[str, float | None]) -> None:
        admin.alter_client_quotas([ClientQuotaAlteration(entity, quotas)])
        wanted = {key: value for key, value in quotas.items() if value is not None}
        with KafkaWire(cluster.kafka_bootstrap) as wire:
            wait_until(lambda: described(wire) == wanted, lambda: described(wire))

    used: list[tuple[ClientQuotaEntity, Mapping[str, None]]] = []

    def set_and_note(names: Mapping[str, str], **quotas: float) -> None:
        entity = ClientQuotaEntity.of(names)
        used.append((entity, dict.fromkeys(quotas)))
        set_(entity, quotas)

    yield set_and_note
    for entity, nothing in used:
        set_(entity, nothing)


def described(wire: KafkaWire) -> dict[str, float]:
    answer = wire.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, {"components": [], "strict": False})
    return {value.key: value.value for entry in answer.entries for value in entry.values}


def produce(wire: KafkaWire) -> Any:
    """Produces a batch and returns the answer's throttle time.

    The broker stores the batch even if it throttles the client.
    """
    partitions = [{"index": 0, "records": BATCH}]
    fields = {
        "transactional_id": None,
        "acks": 1,
        "timeout": 30_000,
        "topic_data": [{"name": TOPIC, "partition_data": partitions}],
    }
    answer = wire.ask(ApiKey.PRODUCE, 9, fields)
    assert answer.responses[0].partition_responses[0].error_code.name == "none"
    return answer.throttle_time


def fetch(wire: KafkaWire, offset: int = 0, max_bytes: int = 1 << 20) -> tuple[Any, int]:
    """Fetches and returns the answer's throttle time and the number of bytes of records in it."""
    fields = {
        "max_wait": 0,
        "min_bytes": 0,
        "max_bytes": max_bytes,
        "topics": [
            {
                "topic": TOPIC,
                "partitions": [{"partition": 0, "fetch_offset": offset, "partition_max_bytes": max_bytes}],
            }
        ],
        "forgotten_topics_data": [],
    }
    answer = wire.ask(ApiKey.FETCH, 11, fields)
    records = [partition.records or b"" for topic in answer.responses for partition in topic.partitions]
    return answer.throttle_time, sum(map(len, records))


def until_throttled(ask: Callable[[], Any]) -> tuple[Any, float]:
    """Asks until a throttle time is not 0. Returns this throttle time and the time of the request in seconds.

    The requests exceed the quota long before the last attempt. If the machine stalls for ten seconds, the count starts
    again.
    """
    for _ in range(100):
        asked_s = time.monotonic()
        if told := ask():
            return told, asked_s
    raise AssertionError("no request was throttled")


def test_a_producer_above_its_byte_rate_is_told_the_throttle_time_and_throttled(
    cluster: KlammProcess, set_quotas: SetQuotas
) -> None:
    set_quotas(USER, producer_byte_rate=BATCH_BYTES // 3)
    with KafkaWire(cluster.kafka_bootstrap) as wire:
        assert produce(wire) == NOTHING, "ten seconds' worth come at once"
        told, asked_s = until_throttled(lambda: produce(wire))
        produce(wire)
        assert time.monotonic() - asked_s >= told.total_seconds() * 0.99


def test_a_consumer_above_its_byte_rate_gets_no_records_and_is_throttled(
    cluster: KlammProcess, set_quotas: SetQuotas
) -> None:
    with KafkaWire(cluster.kafka_bootstrap) as wire:
        for _ in range(12):
            produce(wire)
    set_quotas(CLIENT, consumer_byte_rate=BATCH_BYTES)
    with KafkaWire(cluster.kafka_bootstrap) as wire:
        told, size = fetch(wire)
        assert told == NOTHING
        assert 8 * BATCH_BYTES < size <= 10 * BATCH_BYTES, "cut to what may be had at once"
        sizes = []

        def next_fetch() -> Any:
            told, size = fetch(wire, max_bytes=3 * BATCH_BYTES)
            sizes.append(size)
            return told

        told, asked_s = until_throttled(next_fetch)
        assert sizes[-1] == 0
        assert all(sizes[:-1])
        fetch(wire)
        assert time.monotonic() - asked_s >= told.total_seconds() * 0.99


def test_a_throttled_fetch_starts_no_fetch_session(cluster: KlammProcess, set_quotas: SetQuotas) -> None:
    with KafkaWire(cluster.kafka_bootstrap) as wire:
        produce(wire)
    set_quotas(BOTH, consumer_byte_rate=1)
    fields = {
        "max_wait": 0,
        "min_bytes": 0,
        "max_bytes": 1 << 20,
        "session_id": 0,
        "session_epoch": 0,
        "topics": [
            {"topic": TOPIC, "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}]}
        ],
        "forgotten_topics_data": [],
    }
    with KafkaWire(cluster.kafka_bootstrap) as wire:
        answer = wire.ask(ApiKey.FETCH, 11, fields)
    assert answer.throttle_time > NOTHING
    assert (answer.error_code.name, answer.session_id, answer.responses) == ("none", 0, ())


def test_above_the_request_time_quota_every_answer_has_a_throttle_time(
    cluster: KlammProcess, set_quotas: SetQuotas
) -> None:
    set_quotas(USER, request_percentage=1e-6)
    second = timedelta(seconds=1)
    questions = (
        (ApiKey.METADATA, 4, {"topics": None, "allow_auto_topic_creation": False}),
        (ApiKey.API_VERSIONS, 3, {"client_software_name": "wire", "client_software_version": "1"}),
        (ApiKey.LIST_GROUPS, 4, {"states_filter": []}),
    )
    with KafkaWire(cluster.kafka_bootstrap) as wire:
        # Requests from before the quota was set must not count.
        wire.ask(*questions[0])
    for api_key, version, fields in questions:
        with KafkaWire(cluster.kafka_bootstrap) as wire:
            assert wire.ask(api_key, version, fields).throttle_time == second, api_key
    with KafkaWire(cluster.kafka_bootstrap) as wire:
        assert produce(wire) == second
        assert fetch(wire) == (second, 0)


def test_klamm_producers_and_consumers_are_throttled_to_their_byte_rates(
    cluster: KlammProcess, set_quotas: SetQuotas
) -> None:
    """Ten seconds' worth of bytes pass at once on any machine, and each later batch waits for a second."""
    set_quotas(OURS, producer_byte_rate=BATCH_BYTES, consumer_byte_rate=BATCH_BYTES)
    began_s = time.monotonic()
    with Producer(bootstrap_servers=cluster.bootstrap, client_id="ours", linger_ms=0) as producer:
        for _ in range(13):
            sent = producer.send(TOPIC, bytes(BATCH_BYTES)).result(patience())
    assert time.monotonic() - began_s >= 1.9
    settings = {"client_id": "ours", "max_partition_fetch_bytes": 2 * BATCH_BYTES}
    with Consumer(bootstrap_servers=cluster.bootstrap, **settings) as consumer:
        consumer.assign([TopicPartition(TOPIC, 0)])
        consumer.seek(TopicPartition(TOPIC, 0), sent.offset - 12)
        began_s = time.monotonic()
        seen = 0
        while seen < 13:
            seen += sum(map(len, consumer.poll(1_000).values()))
    assert time.monotonic() - began_s >= 0.9


def test_above_the_request_time_quota_calls_of_the_grpc_api_wait(cluster: KlammProcess, set_quotas: SetQuotas) -> None:
    set_quotas(USER, request_percentage=1e-6)
    partition = TopicPartition(TOPIC, 0)
    with Consumer(bootstrap_servers=cluster.bootstrap) as consumer:
        consumer.end_offsets([partition])
        began_s = time.monotonic()
        consumer.end_offsets([partition])
        assert time.monotonic() - began_s >= 0.9
    with Producer(bootstrap_servers=cluster.bootstrap, linger_ms=0) as producer:
        producer.send(TOPIC, b"first").result(patience())
        began_s = time.monotonic()
        producer.send(TOPIC, b"second").result(patience())
        assert time.monotonic() - began_s >= 0.9


def test_topic_creations_and_deletions_above_the_mutation_quota_are_refused(
    cluster: KlammProcess, admin: Admin, set_quotas: SetQuotas
) -> None:
    """Eleven seconds' worth of changes pass at once.

    A topic may use more than the rest of the quota; then the next is refused.
    """
    set_quotas(USER, controller_mutation_rate=1)

    def create(wire: KafkaWire, *names: str) -> tuple[list[str], timedelta]:
        topics = [
            {"name": name, "num_partitions": 100, "replication_factor": 1, "assignments": [], "configs": []}
            for name in names
        ]
        answer = wire.ask(ApiKey.CREATE_TOPICS, 7, {"topics": topics, "timeout": 30_000, "validate_only": False})
        return [topic.error_code.name for topic in answer.topics], answer.throttle_time

    with KafkaWire(cluster.kafka_bootstrap) as wire:
        codes, told = create(wire, "many", "too-many")
    assert codes == ["none", "throttling_quota_exceeded"]
    assert timedelta(seconds=80) < told < timedelta(seconds=90)
    with pytest.raises(EXCEPTIONS[ErrorCode.THROTTLING_QUOTA_EXCEEDED]):
        admin.delete_topics(["many"])
