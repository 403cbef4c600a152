"""Tests `send_many` and `send_now`: the written records, the errors of wrong records, and the futures."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from klamm.errors import (
    EXCEPTIONS,
    BufferExhaustedError,
    ErrorCode,
    SerializationError,
)
from klamm.partitioner import PartitionInfo, key_partition
from klamm.producer import AsyncProducer, ProducerInterceptor, ProducerRecord
from tests.support.scripted_broker import Answer, ScriptedCluster
from tests.support.scripted_producer import producing
from tests.support.waiting import patience

MessageTooLargeError = EXCEPTIONS[ErrorCode.MESSAGE_TOO_LARGE]
UnknownTopicOrPartitionError = EXCEPTIONS[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_all_values_are_written_in_order() -> None:
    values = [b"%d" % number for number in range(25_000)]
    with producing(1) as (producer, cluster):
        future = producer.send_many("t", values)
        assert len(future) == 25_000
        assert future.result(patience()) == 25_000
        assert future.done()
        assert cluster.values("t") == values


def test_keys_headers_and_partitions_are_those_of_send() -> None:
    keys = [b"k%d" % number for number in range(500)]
    with producing(4) as (producer, cluster):
        producer.send_many("t", keys, keys=keys, headers=[("h", b"x")]).result(patience())
        producer.send_many("t", [b"here", None], partition=3).result(patience())
        records = {number: cluster.records("t", number) for number in range(4)}
    for number in range(4):
        keyed = [record for record in records[number] if record.key is not None]
        assert [record.key for record in keyed] == [key for key in keys if key_partition(key, 4) == number]
        assert all(record.headers == (("h", b"x"),) and record.value == record.key for record in keyed)
    assert [record.value for record in records[3] if record.key is None] == [b"here", None]


def test_no_values_are_no_records() -> None:
    with producing(1) as (producer, _):
        assert producer.send_many("t", []).result(0) == 0


@pytest.mark.parametrize(
    ("values", "keys", "error", "text"),
    [
        ([b"a", "text"], None, SerializationError, "record 1: the value of a record for topic 't' is str, not bytes"),
        ([b"a", b"b"], [b"k", 5], SerializationError, "record 1: the key of a record for topic 't' is int"),
        ([b"a", bytes(2_000_000)], None, MessageTooLargeError, "record 1 for topic 't' has 2000036 bytes"),
        ([b"a", b"b"], [b"k"], ValueError, "1 keys for 2 values"),
    ],
)
def test_a_wrong_record_leaves_all_unsent(
    values: list[Any], keys: list[Any] | None, error: type[Exception], text: str
) -> None:
    with producing(1) as (producer, cluster):
        with pytest.raises(error, match=text):
            producer.send_many("t", values, keys=keys)
        producer.flush(patience())
        assert cluster.values("t") == []


def test_the_first_error_is_raised() -> None:
    with producing(1, batch_size=200, linger_ms=0) as (producer, cluster):
        producer.send("t", b"warm").result(patience())
        cluster.produce_answers.append(Answer(error=ErrorCode.INVALID_RECORD))
        future = producer.send_many("t", [bytes(50)] * 100)
        with pytest.raises(EXCEPTIONS[ErrorCode.INVALID_RECORD]):
            future.result(patience())
        producer.flush(patience())
        assert future.done()


def test_it_waits_for_memory() -> None:
    values = [bytes(1_000)] * 500
    with producing(1, buffer_memory=20_000, batch_size=4_000) as (producer, cluster):
        assert producer.send_many("t", values).result(patience()) == 500
        assert len(cluster.values("t")) == 500


def test_serializers_interceptors_and_partitioners_see_each_record() -> None:
    class Doubles(ProducerInterceptor):
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            return record._replace(value=record.value * 2)

    def last(topic: str, key: Any, value: Any, partitions: Sequence[PartitionInfo]) -> int:
        return len(partitions) - 1

    with producing(1, value_serializer="string") as (producer, cluster):
        producer.send_many("t", ["a", "b"]).result(patience())
        assert cluster.values("t") == [b"a", b"b"]
    with producing(2, interceptor_classes=[Doubles()]) as (producer, cluster):
        producer.send_many("t", [b"a", b"b"], partition=1).result(patience())
        assert cluster.values("t", 1) == [b"aa", b"bb"]
    with producing(3, partitioner_class=last) as (producer, cluster):
        producer.send_many("t", [b"a", b"b"], keys=[b"k", b"l"]).result(patience())
        assert cluster.values("t", 2) == [b"a", b"b"]


def on_a_loop(body: Any, **settings: Any) -> None:
    async def main() -> None:
        cluster = ScriptedCluster()
        cluster.create_topic("t", 1)
        async with cluster.serve(), AsyncProducer(bootstrap_servers=cluster.bootstrap, **settings) as producer:
            await body(producer, cluster)

    asyncio.run(asyncio.wait_for(main(), patience()))


def test_the_async_producer_sends_many_and_lets_the_loop_run() -> None:
    values = [b"%d" % number for number in range(25_000)]

    async def body(producer: AsyncProducer, cluster: ScriptedCluster) -> None:
        future = await producer.send_many("t", values)
        assert len(future) == 25_000
        assert await future == 25_000
        assert future.done()
        assert cluster.values("t") == values
        with pytest.raises(SerializationError, match="record 2"):
            await producer.send_many("t", [b"a", b"b", 3])

    on_a_loop(body)


def test_the_async_producer_waits_for_memory() -> None:
    async def body(producer: AsyncProducer, cluster: ScriptedCluster) -> None:
        assert await (await producer.send_many("t", [bytes(1_000)] * 500)) == 500

    on_a_loop(body, buffer_memory=20_000, batch_size=4_000)


def test_send_now_sends_at_once_or_raises() -> None:
    async def body(producer: AsyncProducer, cluster: ScriptedCluster) -> None:
        with pytest.raises(UnknownTopicOrPartitionError, match=r"await partitions_for\('t'\) before send_now"):
            producer.send_now("t", b"early")
        await producer.partitions_for("t")
        futures = [producer.send_now("t", b"%d" % number) for number in range(5)]
        with pytest.raises(UnknownTopicOrPartitionError):
            producer.send_now("t", b"elsewhere", partition=9)
        with pytest.raises(BufferExhaustedError, match="send_now does not wait"):
            [producer.send_now("t", bytes(1_000)) for _ in range(100)]
        await producer.flush()
        assert [(await future).offset for future in futures] == list(range(5))

    on_a_loop(body, buffer_memory=20_000, batch_size=4_000)
