"""The synchronous Producer over real gRPC: records arrive in their partition, in order and complete."""

from __future__ import annotations

import enum
import threading

import pytest

from klamm.partitioner import key_partition
from klamm.producer import RecordMetadata
from tests.support.scripted_broker import ScriptedCluster
from tests.support.scripted_producer import numbered, producing
from tests.support.violation import verdict
from tests.support.waiting import patience


def test_a_sent_record_is_written_and_its_future_returns_partition_and_offset() -> None:
    with producing(3) as (producer, cluster):
        metadata = producer.send("t", b"value", b"key", timestamp_ms=77, headers=[("h", b"1"), ("n", None)])
        expected_partition = key_partition(b"key", 3)

        assert metadata.result(patience()) == RecordMetadata("t", expected_partition, 0, 77, 3, 5)
        (record,) = cluster.records("t", expected_partition)
        assert (record.key, record.value, record.timestamp_ms) == (b"key", b"value", 77)
        assert record.headers == (("h", b"1"), ("n", None))


class Names(enum.StrEnum):
    """A program's own names."""

    TOPIC = "t"
    HEADER = "h"


class Content(bytes):
    """Bytes that stay what they are when they are copied."""

    def __bytes__(self) -> bytes:
        return self


def test_names_and_contents_of_subclasses_are_sent_as_others() -> None:
    value, headers = Content(b"value"), [(Names.HEADER, Content(b"1"))]
    with producing(1) as (producer, cluster):
        producer.send(Names.TOPIC, value, Content(b"key"), headers=headers).result(patience())
        producer.send_many(Names.TOPIC, [value], keys=[Content(b"key")], headers=headers).result(patience())
        records = cluster.records("t", 0)
    assert [(record.key, record.value, record.headers) for record in records] == [
        (b"key", b"value", (("h", b"1"),))
    ] * 2


def test_send_writes_to_the_partition_that_the_caller_chose() -> None:
    with producing(3) as (producer, cluster):
        assert producer.send("t", b"v", partition=2).result(patience()).partition == 2
        assert cluster.values("t", 2) == [b"v"]


@pytest.mark.parametrize(
    ("racks", "client_rack"),
    [(("a", "b"), "b"), (("dc1/host1", "dc2/host2"), "dc2/host9"), (("dc1/a", "dc1/b"), "dc1/b")],
)
def test_records_without_key_stay_near_the_client(racks: tuple[str, str], client_rack: str) -> None:
    cluster = ScriptedCluster(broker_count=2, racks=racks)
    with producing(8, cluster=cluster, client_rack=client_rack, partitioner_rack_aware=True, batch_size=0) as (
        producer,
        _,
    ):
        futures = [producer.send("t", b"v") for _ in range(40)]

        assert {future.result(patience()).partition % 2 for future in futures} == {1}


def test_many_small_batches_arrive_in_order_with_their_offsets() -> None:
    with producing(batch_size=200) as (producer, cluster):
        futures = [producer.send("t", value) for value in numbered(500)]

        with verdict():
            assert [future.result(patience()).offset for future in futures] == list(range(500))
            assert cluster.values("t") == numbered(500)


def test_several_threads_share_one_producer() -> None:
    with producing(2, batch_size=500) as (producer, cluster):

        def send(name: int) -> None:
            for number in range(200):
                producer.send("t", b"%d:%d" % (name, number), partition=name % 2)

        threads = [threading.Thread(target=send, args=[name]) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        producer.flush(patience())

        arrived = [value for partition in (0, 1) for value in cluster.values("t", partition)]
        for name in range(4):
            mine = [value for value in arrived if value is not None and value.startswith(b"%d:" % name)]
            assert mine == [b"%d:%d" % (name, number) for number in range(200)]


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_arrive(compression: str) -> None:
    with producing(compression_type=compression, linger_ms=5) as (producer, cluster):
        for value in numbered(300):
            producer.send("t", value)
        producer.flush(patience())

        assert cluster.values("t") == numbered(300)


def test_null_key_and_value_stay_null() -> None:
    with producing() as (producer, cluster):
        metadata = producer.send("t").result(patience())

        assert (metadata.serialized_key_size, metadata.serialized_value_size) == (-1, -1)
        assert [(record.key, record.value) for record in cluster.records("t")] == [(None, None)]


def test_the_metadata_has_the_log_append_time_of_the_broker() -> None:
    cluster = ScriptedCluster()
    cluster.log_append_time_ms = 1234
    with producing(cluster=cluster) as (producer, _):
        assert producer.send("t", b"v", timestamp_ms=5).result(patience()).timestamp_ms == 1234
