"""Tests the Producer against the real services, which a scripted broker only imitates."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import Iterator

import pytest

from klamm.admin import Admin, NewTopic
from klamm.consumer import ConsumerRecord
from klamm.errors import EXCEPTIONS, ErrorCode, OtherRecordsInvalidError
from klamm.model import TopicPartition
from klamm.producer import AsyncProducer, Producer
from tests.support.klamm_process import KlammProcess, running_cluster
from tests.support.reading import read_all
from tests.support.violation import verdict
from tests.support.waiting import patience, wait_until

MessageTooLargeError = EXCEPTIONS[ErrorCode.MESSAGE_TOO_LARGE]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KlammProcess]:
    directory: pathlib.Path = tmp_path_factory.mktemp("cluster")
    with running_cluster(directory) as started:
        yield started


def create(cluster: KlammProcess, name: str, partition_count: int = 1, **configs: str) -> None:
    dotted = {key.replace("_", "."): value for key, value in configs.items()}
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(name, partition_count=partition_count, configs=dotted)])


def read(cluster: KlammProcess, topic: str, partition: int) -> list[ConsumerRecord]:
    return read_all(cluster.bootstrap, [TopicPartition(topic, partition)])


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_the_offsets_in_the_metadata_are_the_offsets_in_the_log(cluster: KlammProcess, compression: str) -> None:
    topic = f"offsets-{compression}"
    create(cluster, topic, partition_count=2)
    with Producer(bootstrap_servers=cluster.bootstrap, compression_type=compression, batch_size=1_000) as producer:
        sent = [
            (producer.send(topic, b"%d" % number, b"k%d" % (number % 7), headers=[("n", b"%d" % number)]))
            for number in range(2_000)
        ]
        places = [future.result(patience()) for future in sent]

    for partition in (0, 1):
        expected = {place.offset: b"%d" % number for number, place in enumerate(places) if place.partition == partition}
        records = read(cluster, topic, partition)
        assert {record.offset: record.value for record in records} == expected
        assert [record.value for record in records] == sorted(expected.values(), key=lambda value: int(value))
        assert all(record.headers == (("n", record.value),) for record in records)


def test_batches_above_the_topics_max_message_bytes_are_split(cluster: KlammProcess) -> None:
    create(cluster, "small-batches", max_message_bytes="500")
    with Producer(bootstrap_servers=cluster.bootstrap, linger_ms=20) as producer:
        futures = [producer.send("small-batches", b"%d" % number) for number in range(500)]
        too_large = producer.send("small-batches", b"x" * 600)

        assert [future.result(patience()).offset for future in futures] == list(range(500))
        assert isinstance(too_large.exception(patience()), MessageTooLargeError)
        assert producer.metrics()["batch-split-total"] > 0


@pytest.mark.parametrize("batch_size", [16_384, 200])
def test_a_refused_record_does_not_fail_the_other_batches_of_its_request(
    cluster: KlammProcess, batch_size: int
) -> None:
    """The error of the other records in the batch names the refused one.

    Other batches of the request are written (KIP-467).
    """
    topic = f"keyed-{batch_size}"
    create(cluster, topic, cleanup_policy="compact")
    told: dict[int, Exception | None] = {}
    with Producer(bootstrap_servers=cluster.bootstrap, linger_ms=100, batch_size=batch_size) as producer:
        futures = [
            producer.send(
                topic,
                b"%d" % number,
                None if number == 7 else b"%d" % number,
                partition=0,
                on_delivery=lambda _, error, number=number: told.update({number: error}),
            )
            for number in range(60)
        ]
        errors = [future.exception(patience()) for future in futures]
        assert producer.send(topic, b"v", b"after", partition=0).result(patience()).offset == errors.count(None)

    assert isinstance(errors[7], EXCEPTIONS[ErrorCode.INVALID_RECORD])
    assert str(errors[7]).startswith("INVALID_RECORD: the record has no key,")
    with_it = [error for error in errors[:7] + errors[8:] if error is not None]
    assert 0 < len(with_it) == (59 if batch_size > 1_000 else len(with_it)) < 60
    assert all(isinstance(error, OtherRecordsInvalidError) for error in with_it)
    assert "record 7: the record has no key" in str(with_it[0]) or batch_size < 1_000
    assert [told[number] for number in range(60)] == errors
    if batch_size < 1_000:
        assert errors.count(None) > 40


def test_topic_is_created_by_the_first_record(cluster: KlammProcess) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        assert producer.send("made-on-demand", b"v").result(patience()).offset == 0


def test_with_acks_0_a_record_is_written_to_the_log(cluster: KlammProcess) -> None:
    create(cluster, "unacknowledged")
    with Producer(bootstrap_servers=cluster.bootstrap, acks=0) as producer:
        assert producer.send("unacknowledged", b"v").result(patience()).offset == -1

    (record,) = wait_until(lambda: read(cluster, "unacknowledged", 0))
    assert record.value == b"v"


def test_with_log_append_time_the_broker_sets_the_timestamp(cluster: KlammProcess) -> None:
    create(cluster, "stamped", message_timestamp_type="LogAppendTime")
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        metadata = producer.send("stamped", b"v", timestamp_ms=5).result(patience())

    (record,) = read(cluster, "stamped", 0)
    assert metadata.timestamp_ms == record.timestamp != 5


def test_asyncio_producer_writes_the_same_log(cluster: KlammProcess) -> None:
    create(cluster, "from-asyncio")

    async def main() -> None:
        async with AsyncProducer(bootstrap_servers=cluster.bootstrap) as producer:
            futures = [await producer.send("from-asyncio", b"%d" % number) for number in range(1_000)]
            assert [(await future).offset for future in futures] == list(range(1_000))

    asyncio.run(main())

    assert [record.value for record in read(cluster, "from-asyncio", 0)] == [b"%d" % number for number in range(1_000)]


def test_a_producer_delivers_all_records_in_order_across_a_broker_kill(tmp_path: pathlib.Path) -> None:
    with running_cluster(tmp_path) as cluster:
        create(cluster, "survivor")
        with Producer(bootstrap_servers=cluster.bootstrap, batch_size=500, reconnect_backoff_max_ms=200) as producer:
            before = [producer.send("survivor", b"%d" % number) for number in range(200)]
            assert before[-1].result(patience()).offset == 199
            cluster.kill()
            during = [producer.send("survivor", b"%d" % number) for number in range(200, 400)]
            cluster.start()
            after = [producer.send("survivor", b"%d" % number) for number in range(400, 600)]
            places = [future.result(patience()).offset for future in (*before, *during, *after)]

        with verdict():
            assert places == sorted(places)
        values = {record.offset: record.value for record in read(cluster, "survivor", 0)}
        with verdict():
            assert [values[place] for place in places] == [b"%d" % number for number in range(600)]
