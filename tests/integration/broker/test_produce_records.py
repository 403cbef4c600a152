"""ProduceRecords: plain records of a gRPC client become batches that every client reads, and bad input is named."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

import grpc
import pytest
from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import Producer as KafkaProducer

from klamm import Admin, NewTopic, Producer, TopicPartition
from klamm.admin import ClientQuotaAlteration, ClientQuotaEntity
from klamm.errors import ErrorCode
from klamm.records import CompressionType, decode_batch, iter_headers
from klamm.wire.v1 import broker_pb2 as b
from klamm_server.rpc.item_limits import ITEMS_MAX
from tests.support.broker_harness import MESSAGE_BYTES_MAX, RunningBroker, StartBroker
from tests.support.klamm_process import KlammProcess, running_cluster
from tests.support.reading import read_all
from tests.support.waiting import patience, wait_until

KEYS = [b"", b"a", b"alice", b"k" * 100, *(b"key-%d" % number for number in range(60))]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KlammProcess]:
    with running_cluster(tmp_path_factory.mktemp("plain")) as running:
        yield running


@pytest.fixture
def topic(cluster: KlammProcess, request: pytest.FixtureRequest) -> str:
    name = request.node.originalname.removeprefix("test_")[:60]
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(name, partition_count=5)])
        wait_until(
            lambda: all(partition.leader >= 0 for partition in admin.describe_topics([name])[name].partitions), name
        )
    return name


def ask(cluster: KlammProcess, topic: str, records: list[b.PlainRecord], **fields: Any) -> b.ProduceRecordsResponse:
    """Returns the answer of a cluster that knows the topic."""
    request = b.ProduceRecordsRequest(topic=topic, records=records, **fields)
    with grpc.insecure_channel(cluster.bootstrap) as channel:
        call = channel.unary_unary(
            "/klamm.v1.Broker/ProduceRecords",
            request_serializer=b.ProduceRecordsRequest.SerializeToString,
            response_deserializer=b.ProduceRecordsResponse.FromString,
        )
        answers = []

        def is_known() -> bool:
            answers.append(call(request, timeout=patience()))
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION not in {record.error_code for record in answers[-1].records}

        wait_until(is_known, lambda: str(answers[-1]))
    return answers[-1]


def partitions(topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(5)]


def test_records_are_read_by_our_consumer_and_by_a_kafka_client(cluster: KlammProcess, topic: str) -> None:
    headers = [b.PlainHeader(key="trace", value=b"\x00\xff"), b.PlainHeader(key="none"), b.PlainHeader(key="trace")]
    records = [
        b.PlainRecord(key=b"alice", value=b"one", headers=headers, timestamp_ms=1_700_000_000_000),
        b.PlainRecord(key=b"alice"),
        b.PlainRecord(value=b""),
        b.PlainRecord(key=b"", value=b"empty key"),
    ]
    answer = ask(cluster, topic, records)
    assert [(one.error_code, one.error_message) for one in answer.records] == [(0, "")] * 4
    written = {(one.partition, one.offset): record for one, record in zip(answer.records, records, strict=True)}
    for found in read_all(cluster.bootstrap, partitions(topic)):
        record = written.pop((found.partition, found.offset))
        assert found.key == (record.key if record.HasField("key") else None)
        assert found.value == (record.value if record.HasField("value") else None)
        assert found.headers == tuple(
            (header.key, header.value if header.HasField("value") else None) for header in record.headers
        )
        assert found.timestamp == record.timestamp_ms or not record.HasField("timestamp_ms")
        assert found.timestamp > 1_600_000_000_000
    assert not written
    assert sorted(read_by_kafka(cluster, topic, 4), key=str) == sorted(
        [(b"alice", b"one"), (b"alice", None), (None, b""), (b"", b"empty key")], key=str
    )


def read_by_kafka(cluster: KlammProcess, topic: str, count: int) -> list[tuple[bytes | None, bytes | None]]:
    consumer = KafkaConsumer(
        {"bootstrap.servers": cluster.kafka_bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found = []
    for _ in range(count):
        message = consumer.poll(patience())
        assert message is not None
        assert message.error() is None
        found.append((message.key(), message.value()))
    consumer.close()
    return found


def test_keys_go_to_the_partitions_that_kafkas_clients_choose(cluster: KlammProcess, topic: str) -> None:
    answer = ask(cluster, topic, [b.PlainRecord(key=key, value=b"v") for key in KEYS])
    chosen = {key: record.partition for key, record in zip(KEYS, answer.records, strict=True)}
    assert len(set(chosen.values())) == 5
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        assert chosen == {key: producer.send(topic, b"v", key).result().partition for key in KEYS}
    delivered = {}
    kafka = KafkaProducer({"bootstrap.servers": cluster.kafka_bootstrap, "partitioner": "murmur2_random"})
    for key in KEYS:
        kafka.produce(topic, b"v", key, on_delivery=lambda _, sent: delivered.update({sent.key(): sent.partition()}))
    assert kafka.flush(patience()) == 0
    # librdkafka chooses a random partition for an empty key.
    assert {key: chosen[key] for key in KEYS if key} == {key: delivered[key] for key in KEYS if key}


def test_records_without_a_key_share_a_partition_and_a_named_one_gets_all(cluster: KlammProcess, topic: str) -> None:
    answer = ask(cluster, topic, [b.PlainRecord(value=b"%d" % number) for number in range(100)])
    assert len({record.partition for record in answer.records}) == 1
    assert [record.offset for record in answer.records] == list(range(100))
    records = [b.PlainRecord(key=key, value=b"v") for key in KEYS]
    named = ask(cluster, topic, records, partition=3)
    assert {record.partition for record in named.records} == {3}


def test_a_large_request_with_long_keys_and_headers_is_written_in_its_order(cluster: KlammProcess, topic: str) -> None:
    records = [
        b.PlainRecord(
            key=(b"%d" % (number % 7)) * 300, value=b"%d" % number, headers=[b.PlainHeader(key="n", value=b"h")]
        )
        for number in range(ITEMS_MAX // 2)
    ]
    answer = ask(cluster, topic, records)
    assert {record.error_code for record in answer.records} == {0}
    found = {(each.partition, each.offset): each for each in read_all(cluster.bootstrap, partitions(topic))}
    assert len(found) == len(records)
    for one, record in zip(answer.records, records, strict=True):
        assert found[one.partition, one.offset].value == record.value
    by_key: dict[bytes, list[int]] = {}
    for each in found.values():
        by_key.setdefault(each.key, []).append(int(each.value))
    assert all(numbers == sorted(numbers) for numbers in by_key.values())


def test_a_client_over_its_quota_is_told_how_long_to_wait(cluster: KlammProcess, topic: str) -> None:
    entity = ClientQuotaEntity.of({"client-id": topic})
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.alter_client_quotas([ClientQuotaAlteration(entity, {"producer_byte_rate": 1_000.0})])
        pauses = []

        def is_throttled() -> bool:
            pauses.append(ask(cluster, topic, [b.PlainRecord(value=bytes(20_000))], client_id=topic).throttle_time_ms)
            return pauses[-1] > 0

        wait_until(is_throttled, lambda: str(pauses))
        admin.alter_client_quotas([ClientQuotaAlteration(entity, {"producer_byte_rate": None})])


GOOD = b.PlainRecord(key=b"k", value=b"good")
BAD: Mapping[str, tuple[b.PlainRecord, ErrorCode, str]] = {
    "too large": (b.PlainRecord(value=bytes(5_000)), ErrorCode.MESSAGE_TOO_LARGE, "max.message.bytes=4000"),
    "a header without a key": (
        b.PlainRecord(headers=[b.PlainHeader(value=b"v")]),
        ErrorCode.INVALID_RECORD,
        "header 0 has no key",
    ),
    "a negative timestamp": (b.PlainRecord(timestamp_ms=-2), ErrorCode.INVALID_TIMESTAMP, "timestamp_ms=-2"),
    "from the far future": (b.PlainRecord(timestamp_ms=2**62), ErrorCode.INVALID_TIMESTAMP, str(2**62)),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_record_is_named_and_nothing_of_its_partition_is_written(start_broker: StartBroker, name: str) -> None:
    bad, code, text = BAD[name]

    async def scenario() -> None:
        async with start_broker() as (broker, controller):
            await controller.create_topic("flights", 2, configs={"max.message.bytes": "4000"})
            await broker.wait_for_topic("flights", 2)
            first, second, third = (await produce(broker, [GOOD, bad, GOOD], partition=1)).records
            assert (second.error_code, second.offset) == (code, -1)
            assert text in second.error_message
            assert first == third
            assert (first.error_code, first.offset) == (ErrorCode.INVALID_RECORD, -1)
            assert first.error_message
            (after,) = (await produce(broker, [GOOD], partition=1)).records
            assert (after.error_code, after.offset) == (0, 0)

    asyncio.run(scenario())


async def produce(broker: RunningBroker, records: list[b.PlainRecord], **fields: Any) -> b.ProduceRecordsResponse:
    response: b.ProduceRecordsResponse = await broker.stub.produce_records(
        b.ProduceRecordsRequest(**{"topic": "flights", "records": records, **fields})
    )
    return response


@pytest.mark.parametrize(
    ("fields", "code", "text"),
    [
        ({"topic": "missing"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic 'missing' does not exist"),
        ({"topic": "a/b"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "does not exist"),
        ({"partition": 2}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "has 2 partitions, but no partition 2"),
        ({"partition": -1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "has 2 partitions, but no partition -1"),
        ({"acks": 7}, ErrorCode.INVALID_REQUIRED_ACKS, "acks=7; expected -1, 0 or 1"),
        ({"topic": "latest"}, ErrorCode.INVALID_RECORD, "key"),
        ({"topic": "others"}, ErrorCode.NOT_LEADER_OR_FOLLOWER, "broker 1"),
    ],
)
def test_a_bad_request_has_its_error_for_each_record(
    start_broker: StartBroker, fields: dict[str, Any], code: ErrorCode, text: str
) -> None:
    async def scenario() -> None:
        async with start_broker() as (broker, controller):
            await controller.create_topic("flights", 2)
            await controller.create_topic("latest", configs={"cleanup.policy": "compact"})
            await controller.create_topic("others", leader=2, replicas=(2,))
            for name in ("flights", "latest", "others"):
                await broker.wait_for_topic(name)
            answer = await produce(broker, [b.PlainRecord(value=b"v")] * 2, **fields)
            assert [record.error_code for record in answer.records] == [code, code]
            assert all(text in record.error_message for record in answer.records)
            assert {record.offset for record in answer.records} == {-1}
            is_elsewhere = code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert {record.HasField("current_leader") for record in answer.records} == {is_elsewhere}
            assert not is_elsewhere or answer.records[0].current_leader == 2

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"records": []}, "the request has no records"),
        ({"topic": ""}, "the request has no topic"),
        ({"records": [GOOD] * (ITEMS_MAX + 1)}, f"more than {ITEMS_MAX} items"),
        (
            {"records": [b.PlainRecord(headers=[b.PlainHeader(key="h")] * ITEMS_MAX)]},
            f"more than {ITEMS_MAX} items",
        ),
    ],
)
def test_a_request_without_sense_is_refused_as_a_whole(
    start_broker: StartBroker, fields: dict[str, Any], text: str
) -> None:
    async def scenario() -> None:
        async with start_broker() as (broker, controller):
            await controller.create_topic("flights")
            await broker.wait_for_topic("flights")
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await produce(broker, **{"records": [GOOD], **fields})
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert text in str(caught.value.details())

    asyncio.run(scenario())


def test_a_request_that_is_too_large_is_refused_before_it_is_read(start_broker: StartBroker) -> None:
    async def scenario() -> None:
        async with start_broker() as (broker, controller):
            await controller.create_topic("flights")
            await broker.wait_for_topic("flights")
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await produce(broker, [b.PlainRecord(value=bytes(MESSAGE_BYTES_MAX))])
            assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert (await produce(broker, [GOOD])).records[0].error_code == 0

    asyncio.run(scenario())


def test_requests_that_find_no_memory_are_refused_and_give_none_back(start_broker: StartBroker) -> None:
    """The broker takes the memory of each request twice."""

    async def scenario() -> None:
        async with start_broker(configs={"queued.max.request.bytes": str(MESSAGE_BYTES_MAX)}) as (broker, controller):
            await controller.create_topic("flights", configs={"max.message.bytes": str(MESSAGE_BYTES_MAX)})
            await broker.wait_for_topic("flights")
            large = b.PlainRecord(value=bytes(MESSAGE_BYTES_MAX * 6 // 10))
            (refused,) = (await produce(broker, [large])).records
            assert refused.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
            assert "queued.max.request.bytes" in refused.error_message
            half = b.PlainRecord(value=bytes(MESSAGE_BYTES_MAX * 4 // 10))
            for offset in range(3):
                (written,) = (await produce(broker, [half])).records
                assert (written.error_code, written.offset) == (0, offset)

    asyncio.run(scenario())


@pytest.mark.parametrize("codec", ["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_batches_have_the_topics_codec_and_are_as_large_as_it_allows(start_broker: StartBroker, codec: str) -> None:
    wanted = CompressionType.NONE if codec in ("producer", "uncompressed") else CompressionType.from_name(codec)

    async def scenario() -> None:
        async with start_broker() as (broker, controller):
            configs = {"compression.type": codec, "max.message.bytes": "4000"}
            await controller.create_topic("flights", configs=configs)
            await broker.wait_for_topic("flights")
            answer = await produce(broker, [b.PlainRecord(value=b"%04d" % number * 100) for number in range(50)])
            assert [(record.error_code, record.offset) for record in answer.records] == [
                (0, number) for number in range(50)
            ]
            _, data = await broker.fetch("flights")
            headers = list(iter_headers(data))
            assert {header.compression for _, header in headers} == {wanted}
            assert len(headers) > 5
            values = [each.value for position, _ in headers for each in decode_batch(data, position)]
            assert values == [b"%04d" % number * 100 for number in range(50)]

    asyncio.run(scenario())


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_with_acks_of_zero_the_records_have_no_offsets(start_broker: StartBroker, acks: int) -> None:
    async def scenario() -> None:
        async with start_broker() as (broker, controller):
            await controller.create_topic("flights")
            await broker.wait_for_topic("flights")
            answer = await produce(broker, [GOOD, GOOD], acks=acks)
            offsets = [-1, -1] if acks == 0 else [0, 1]
            assert [(record.error_code, record.offset) for record in answer.records] == [
                (0, offset) for offset in offsets
            ]
            _, data = await broker.fetch("flights")
            assert len(decode_batch(data)) == 2

    asyncio.run(scenario())


def test_without_acks_the_call_waits_for_the_replicas(start_broker: StartBroker) -> None:
    async def scenario() -> None:
        async with start_broker() as (broker, controller):
            await controller.create_topic("flights", replicas=(1, 2), isr=(1, 2))
            await broker.wait_for_topic("flights")
            (late,) = (await produce(broker, [GOOD], timeout_ms=1)).records
            assert (late.error_code, late.offset) == (ErrorCode.REQUEST_TIMED_OUT, -1)
            (written,) = (await produce(broker, [GOOD], acks=1)).records
            assert (written.error_code, written.offset) == (0, 1)

    asyncio.run(scenario())


def test_a_topic_with_log_append_time_returns_the_brokers_time(start_broker: StartBroker) -> None:
    async def scenario() -> None:
        async with start_broker() as (broker, controller):
            await controller.create_topic("flights", configs={"message.timestamp.type": "LogAppendTime"})
            await controller.create_topic("created")
            await broker.wait_for_topic("flights")
            await broker.wait_for_topic("created")
            (stamped,) = (await produce(broker, [b.PlainRecord(timestamp_ms=5)])).records
            _, data = await broker.fetch("flights")
            assert stamped.log_append_time_ms == decode_batch(data)[0].timestamp_ms > 5
            (created,) = (await produce(broker, [b.PlainRecord(timestamp_ms=5)], topic="created")).records
            assert not created.HasField("log_append_time_ms")
            _, data = await broker.fetch("created")
            assert decode_batch(data)[0].timestamp_ms == 5

    asyncio.run(scenario())
