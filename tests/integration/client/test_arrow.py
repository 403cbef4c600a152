"""Tests `poll_arrow`, `send_arrow` and `read_arrow` against real services."""

from __future__ import annotations

import asyncio
import datetime
import gc
import itertools
import threading

import pyarrow as pa
import pytest

import klamm
from klamm import Admin, AsyncConsumer, AsyncProducer, Consumer, NewTopic, Producer, TopicPartition
from klamm.consumer import ConsumerRecord
from klamm.errors import (
    EXCEPTIONS,
    ClosedError,
    ConfigError,
    ErrorCode,
    IllegalStateError,
    OffsetOutOfRangeError,
    SerializationError,
    UnknownTopicOrPartitionError,
    WakeupError,
)
from klamm.partitioner import key_partition
from tests.support.klamm_process import running_cluster
from tests.support.waiting import patience

POLL_MS = 60_000
_numbers = itertools.count()
ALL = ["topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers", "leader_epoch"]
MessageTooLargeError = EXCEPTIONS[ErrorCode.MESSAGE_TOO_LARGE]


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory):
    with running_cluster(tmp_path_factory.mktemp("cluster"), {"auto.create.topics.enable": "false"}) as cluster:
        yield cluster.bootstrap


@pytest.fixture(scope="module")
def admin(bootstrap):
    with Admin(bootstrap_servers=bootstrap) as admin:
        yield admin


@pytest.fixture
def topic(admin, request) -> str:
    """Creates a topic with two partitions for this test only."""
    name = f"{request.node.originalname}-{next(_numbers)}"
    admin.create_topics([NewTopic(name, partition_count=2)])
    return name


@pytest.fixture
def consumer(bootstrap, topic):
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        yield consumer


@pytest.fixture
def producer(bootstrap):
    with Producer(bootstrap_servers=bootstrap) as producer:
        yield producer


def produce(producer: Producer, topic: str, count: int, partition: int = 0, first: int = 0) -> None:
    """Produces `count` records. Values are the numbers from `first`, timestamps a thousand times the number."""
    for number in range(first, first + count):
        producer.send(
            topic,
            b"%d" % number,
            b"key" if number % 2 else None,
            partition=partition,
            timestamp_ms=1_000 * number,
            headers=[("h", b"%d" % number), ("n", None)] if number % 3 == 0 else None,
        )
    producer.flush(patience())


def polled(consumer: Consumer, count: int, **options) -> pa.Table:
    """Polls until there are `count` rows, and returns them."""
    batches: list[pa.RecordBatch] = []

    def rows() -> int:
        return sum(batch.num_rows for batch in batches)

    while rows() < count:
        batches.append(consumer.poll_arrow(POLL_MS, **options))
        assert batches[-1].num_rows
    return pa.Table.from_batches(batches)


def as_rows(records: list[ConsumerRecord]) -> list[dict]:
    return [
        {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": datetime.datetime.fromtimestamp(record.timestamp / 1000, datetime.UTC),
            "timestamp_type": record.timestamp_type,
            "key": record.key,
            "value": record.value,
            "headers": [{"key": name, "value": content} for name, content in record.headers],
            "leader_epoch": record.leader_epoch,
        }
        for record in records
    ]


def read_records(bootstrap: str, topic: str, count: int, partitions: int = 2, **settings) -> list[ConsumerRecord]:
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", **settings) as consumer:
        consumer.assign([TopicPartition(topic, number) for number in range(partitions)])
        records: list[ConsumerRecord] = []
        while len(records) < count:
            polled = consumer.poll(POLL_MS)
            assert polled
            records += [record for of_partition in polled.values() for record in of_partition]
        assert not consumer.poll(0)
    return records


# --- poll_arrow


def test_the_columns_are_the_fields_of_the_records(bootstrap, topic, producer, consumer):
    produce(producer, topic, 1_000)
    table = polled(consumer, 1_000)
    assert table.column_names == ALL
    assert table.to_pylist() == as_rows(read_records(bootstrap, topic, 1_000))
    assert consumer.position(TopicPartition(topic, 0)) == 1_000
    assert consumer.metrics()["records-consumed-total"] == 1_000
    assert table.schema.field("topic").type == pa.dictionary(pa.int32(), pa.string())


def test_a_poll_for_columns_moves_the_position_as_a_poll_does(topic, producer, consumer):
    tp = TopicPartition(topic, 0)
    produce(producer, topic, 10)
    first = consumer.poll_arrow(POLL_MS, max_records=3, columns=["offset", "value"])
    assert first.to_pylist() == [{"offset": number, "value": b"%d" % number} for number in range(3)]
    assert consumer.position(tp) == 3
    assert [record.offset for record in consumer.poll(POLL_MS, max_records=2)[tp]] == [3, 4]
    assert next(iter(consumer)).offset == 5
    assert consumer.poll_arrow(POLL_MS, columns=["offset"]).column(0).to_pylist() == [6, 7, 8, 9]
    consumer.seek(tp, 8)
    assert consumer.poll_arrow(POLL_MS, columns=["offset"]).column(0).to_pylist() == [8, 9]


def test_without_records_a_poll_returns_a_batch_with_the_columns(consumer):
    empty = consumer.poll_arrow(50)
    assert (empty.num_rows, empty.schema.names) == (0, ALL)
    assert consumer.poll_arrow(0, columns=["value"]).schema.names == ["value"]


def test_each_partition_has_its_turn(topic, producer, consumer):
    for partition in (0, 1):
        produce(producer, topic, 5, partition)
    consumer.assign([TopicPartition(topic, number) for number in (0, 1)])
    seen: dict[int, list[int]] = {0: [], 1: []}
    while sum(map(len, seen.values())) < 10:
        batch = consumer.poll_arrow(POLL_MS, max_records=2, columns=["partition", "offset"])
        assert len(set(batch.column(0).to_pylist())) == 1
        seen[batch.column(0)[0].as_py()] += batch.column(1).to_pylist()
    assert seen == {0: list(range(5)), 1: list(range(5))}


def test_a_group_commits_the_rows_that_were_returned(bootstrap, topic, producer):
    tp = TopicPartition(topic, 0)
    produce(producer, topic, 6)
    settings = {"bootstrap_servers": bootstrap, "group_id": topic, "auto_offset_reset": "earliest"}

    def fail_after_two_polls() -> None:
        with Consumer(**settings) as consumer:
            consumer.subscribe([topic])
            assert consumer.poll_arrow(POLL_MS, max_records=2).num_rows == 2
            assert consumer.poll_arrow(POLL_MS, max_records=3).num_rows == 3
            raise KeyError

    with pytest.raises(KeyError):
        fail_after_two_polls()
    with Consumer(**settings) as consumer:
        assert consumer.committed([tp])[tp].offset == 2
        consumer.subscribe([topic])
        assert consumer.poll_arrow(POLL_MS, columns=["offset"]).column(0).to_pylist() == [2, 3, 4, 5]
    with Consumer(**settings) as consumer:
        assert consumer.committed([tp])[tp].offset == 6


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_transactions_are_read_as_a_poll_reads_them(bootstrap, topic, compression):
    settings = {"bootstrap_servers": bootstrap, "compression_type": compression}
    with Producer(transactional_id=topic, **settings) as producer:
        producer.init_transactions()
        for number, commits in enumerate((True, False, True)):
            producer.begin_transaction()
            rows = {"value": [b"%d" % number] * 100, "partition": [number % 2] * 100}
            producer.send_arrow(topic, pa.table(rows))
            (producer.commit_transaction if commits else producer.abort_transaction)()
    for isolation, count in (("read_committed", 200), ("read_uncommitted", None)):
        options = {"bootstrap_servers": bootstrap, "isolation_level": isolation}
        read = klamm.read_arrow(topic, **options).read_all()
        assert count is None or read.num_rows == count
        found = sorted(read.to_pylist(), key=lambda row: (row["partition"], row["offset"]))
        records = read_records(bootstrap, topic, read.num_rows, isolation_level=isolation)
        assert found == sorted(as_rows(records), key=lambda row: (row["partition"], row["offset"]))


@pytest.mark.parametrize(
    ("setting", "value"),
    [("key_deserializer", "string"), ("value_deserializer", "json"), ("interceptor_classes", None)],
)
def test_what_would_not_see_the_records_is_refused(bootstrap, topic, setting, value):
    class Interceptor:
        def on_consume(self, records):
            return records

        def on_commit(self, offsets):
            pass

    with Consumer(bootstrap_servers=bootstrap, **{setting: value or [Interceptor()]}) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        name = setting.replace("_", ".")
        with pytest.raises(IllegalStateError, match=f"poll_arrow: {name} would not see these records"):
            consumer.poll_arrow()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"columns": ["price"]}, "a record has no column 'price'; its columns are topic, partition"),
        ({"columns": "value"}, r"columns='value': expected a list of names, such as \['value'\]"),
        ({"columns": []}, "expected at least one name"),
        ({"columns": ["key", "key"]}, "each name once"),
        ({"max_records": 0}, "max_records=0: expected at least 1"),
    ],
)
def test_wrong_arguments_of_a_poll_are_named(consumer, arguments, text):
    with pytest.raises(ConfigError, match=text):
        consumer.poll_arrow(0, **arguments)


def test_wakeup_and_close_end_a_poll_for_columns(consumer):
    waker = threading.Timer(0.1, consumer.wakeup)
    waker.start()
    with pytest.raises(WakeupError):
        consumer.poll_arrow(POLL_MS)
    waker.join()
    consumer.close()
    with pytest.raises(ClosedError):
        consumer.poll_arrow(0)


def test_the_asynchronous_clients_do_the_same(bootstrap, topic):
    async def main() -> None:
        async with AsyncProducer(bootstrap_servers=bootstrap) as producer:
            sent = await producer.send_arrow(topic, pa.table({"value": [b"%d" % number for number in range(5_000)]}))
            assert len(sent) == 5_000
            assert await sent == 5_000
            assert sent.done()
        async with AsyncConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(topic, number) for number in (0, 1)])
            values: list[bytes] = []
            while len(values) < 5_000:
                values += (await consumer.poll_arrow(POLL_MS, 700, ["value"])).column(0).to_pylist()
            assert sorted(map(int, values)) == list(range(5_000))
            assert (await consumer.poll_arrow(0)).schema.names == ALL

    asyncio.run(main())


# --- send_arrow


def test_rows_are_the_records_that_send_would_write(bootstrap, topic, producer):
    time = datetime.datetime(2026, 11, 1, 12, tzinfo=datetime.UTC)
    keys = [b"k%d" % number for number in range(300)] + [None, None]
    table = pa.table(
        {
            "key": keys,
            "value": pa.array([f"v{number}" for number in range(300)] + ["é", None]),
            "partition": pa.array([None] * 300 + [1, 0], pa.int8()),
            "timestamp": pa.array([time] * 301 + [None], pa.timestamp("us", "UTC")),
            "headers": [[{"key": "h", "value": b"x"}, {"key": "n", "value": None}]] + [None] * 300 + [[]],
        }
    )
    before_ms = int(datetime.datetime.now(datetime.UTC).timestamp() * 1000)
    future = producer.send_arrow(topic, table)
    assert future.result(patience()) == len(future) == 302
    records = read_records(bootstrap, topic, 302)
    by_key = {record.key: record for record in records if record.key is not None}
    for number, key in enumerate(keys[:300]):
        record = by_key[key]
        assert (record.value, record.partition) == (b"v%d" % number, key_partition(key, 2))
        assert record.timestamp == int(time.timestamp() * 1000)
        assert record.headers == ((("h", b"x"), ("n", None)) if number == 0 else ())
    rest = {record.value: record for record in records if record.key is None}
    assert rest["é".encode()].partition == 1
    assert rest[None].partition == 0
    assert rest[None].timestamp >= before_ms


def test_a_copy_of_a_topic_has_the_same_records(bootstrap, admin, topic, producer):
    for partition in (0, 1):
        produce(producer, topic, 500, partition)
    admin.create_topics([NewTopic("copy", partition_count=2)])
    with klamm.read_arrow(topic, bootstrap_servers=bootstrap) as reader:
        for batch in reader:
            producer.send_arrow("copy", batch)
    producer.flush(patience())

    def rows(name: str) -> list[dict]:
        found = as_rows(read_records(bootstrap, name, 1_000))
        return sorted([row | {"topic": ""} for row in found], key=lambda row: (row["partition"], row["offset"]))

    assert rows("copy") == rows(topic)


def test_a_partition_may_be_given_for_all_rows(bootstrap, topic, producer):
    table = pa.table({"value": [b"a", b"b"], "key": [b"1", b"2"], "partition": [0, 0]})
    producer.send_arrow(topic, table, partition=1).result(patience())
    assert {record.partition for record in read_records(bootstrap, topic, 2)} == {1}


def test_rows_without_a_key_are_spread_and_small_batches_are_sent_together(bootstrap, topic):
    batches = [pa.record_batch({"value": [bytes(100)] * 10})] * 2_000
    with Producer(bootstrap_servers=bootstrap, batch_size=16_384) as producer:
        producer.send_arrow(topic, pa.Table.from_batches(batches)).result(patience())
        assert producer.metrics()["record-send-total"] == 20_000
        assert producer.metrics()["request-total"] < 400
    assert {record.partition for record in read_records(bootstrap, topic, 20_000)} == {0, 1}


def test_a_table_larger_than_the_memory_of_the_producer_is_sent(bootstrap, topic):
    value = bytes(1_000)
    with Producer(bootstrap_servers=bootstrap, buffer_memory=1_000_000, batch_size=100_000) as producer:
        future = producer.send_arrow(topic, pa.table({"value": [value] * 10_000}))
        assert future.result(patience()) == 10_000
        assert producer.metrics()["buffer-available-bytes"] == 1_000_000
        assert all(not run[0]._records for run in future._runs), "the future keeps the records"


def test_the_users_partitioner_chooses_for_each_row(bootstrap, topic):
    seen = []

    def choose(topic, key, value, partitions):
        seen.append((key, value, len(partitions)))
        return None if key is None else 1

    with Producer(bootstrap_servers=bootstrap, partitioner_class=choose) as producer:
        producer.send_arrow(topic, pa.table({"value": [b"a", b"b"], "key": [b"k", None]})).result(patience())
    assert seen == [(b"k", b"a", 2), (None, b"b", 2)]
    assert next(record.partition for record in read_records(bootstrap, topic, 2) if record.value == b"a") == 1


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"key": [b"k"]}, "no column 'value', of the type binary or string; its columns are key"),
        ({"value": [1]}, "column 'value' has the type int64; expected binary or string"),
        ({"value": [b"v"], "key": [1.5]}, "column 'key' has the type double; expected binary or string"),
        ({"value": [b"v"], "partition": ["1"]}, "column 'partition' has the type string; expected an integer"),
        (
            {"value": [b"v"], "timestamp": ["now"]},
            "column 'timestamp' has the type string; expected timestamp",
        ),
        (
            {"value": [b"v"], "headers": [["h"]]},
            r"column 'headers' has the type list<.*expected list<struct",
        ),
        (
            {"value": [b"v"], "amount": [5]},
            r"no column 'amount' \(of the type int64\); expected key, value",
        ),
        ({"value": [b"v"], "partition": [-1]}, "a row has partition -1; expected 0 or more, or null"),
        ({"value": [b"v"], "timestamp": [-5]}, "a row has the timestamp -5 ms; expected 1970 or later"),
        ({"value": [b"v"], "headers": [[{"key": None, "value": b""}]]}, "has the type|expected a key in every header"),
    ],
)
def test_a_table_that_has_no_records_is_refused_before_anything_is_sent(topic, producer, columns, text):
    with pytest.raises(SerializationError, match=text):
        producer.send_arrow(topic, pa.table(columns))
    assert producer.metrics()["record-send-total"] == 0


def test_other_wrong_arguments_are_named(bootstrap, topic, producer):
    with pytest.raises(TypeError, match="data is list; expected an Arrow table"):
        producer.send_arrow(topic, [b"v"])
    with pytest.raises(MessageTooLargeError, match="1 record"):
        producer.send_arrow(topic, pa.table({"value": [b"v", bytes(2_000_000)]}))
    with pytest.raises(EXCEPTIONS[ErrorCode.INVALID_PARTITIONS]):
        producer.send_arrow(topic, pa.table({"value": [b"v"]}), partition=-1)
    assert producer.metrics()["record-send-total"] == 0
    value = pa.table({"value": [b"v"]})
    with Producer(bootstrap_servers=bootstrap, value_serializer="json") as other:
        text = r"send_arrow: value\.serializer would not see these records"
        with pytest.raises(IllegalStateError, match=text):
            other.send_arrow(topic, value)
    with Producer(bootstrap_servers=bootstrap, transactional_id=topic) as other:
        other.init_transactions()
        with pytest.raises(IllegalStateError):
            other.send_arrow(topic, value)
    producer.close()
    with pytest.raises(ClosedError):
        producer.send_arrow(topic, pa.table({"value": [b"v"]}))


@pytest.mark.parametrize(
    "values",
    [
        pa.array(["a", "b"], pa.large_string()),
        pa.array(["a", "b"], pa.string_view()),
        pa.array([b"a", b"b"], pa.binary(1)),
        pa.array([b"a", b"b"], pa.binary_view()),
        pa.array(["a", "b"]).dictionary_encode(),
        pa.chunked_array([["a"], ["b"]]),
    ],
)
def test_every_kind_of_bytes_and_strings_is_sent(bootstrap, topic, producer, values):
    assert producer.send_arrow(topic, pa.table({"value": values})).result(patience()) == 2
    assert sorted(record.value for record in read_records(bootstrap, topic, 2)) == [b"a", b"b"]


def test_no_rows_are_no_records(topic, producer):
    assert producer.send_arrow(topic, pa.table({"value": pa.array([], pa.binary())})).result(0) == 0


# --- read_arrow


def offsets(reader: pa.RecordBatchReader) -> list[tuple[int, int]]:
    table = reader.read_all()
    return sorted(zip(table.column("partition").to_pylist(), table.column("offset").to_pylist(), strict=True))


def test_a_topic_is_read_within_its_bounds(bootstrap, topic, producer):
    produce(producer, topic, 10, 0)
    produce(producer, topic, 5, 1, first=100)

    def time(number: float) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(number, datetime.UTC)

    def read(**bounds) -> list[tuple[int, int]]:
        return offsets(klamm.read_arrow(topic, bootstrap_servers=bootstrap, columns=["partition", "offset"], **bounds))

    def span(partition: int, *numbers: int) -> list[tuple[int, int]]:
        return [(partition, offset) for offset in range(*numbers)]

    assert read() == span(0, 10) + span(1, 5)
    assert read(start="latest") == []
    assert read(end="earliest") == []
    assert read(start=3, end=7) == span(0, 3, 7) + span(1, 3, 5)
    assert read(start=7, end=3) == []
    assert read(start=99, end=1_000) == []
    assert read(start={0: 8}, end={1: 2}) == span(0, 8, 10) + span(1, 0, 2)
    assert read(start=time(3), end=time(102)) == span(0, 3, 10) + span(1, 0, 2)
    assert read(start=time(3.0005)) == span(0, 4, 10) + span(1, 5)
    assert read(start=time(1_000)) == []
    assert read(end=time(4).astimezone(datetime.timezone(datetime.timedelta(hours=5)))) == span(0, 4)


def test_reading_has_the_columns_in_their_order_and_ends_at_the_time_of_the_call(bootstrap, topic, producer):
    produce(producer, topic, 3)
    reader = klamm.read_arrow(topic, bootstrap_servers=bootstrap, columns=["value", "topic"])
    produce(producer, topic, 3, first=3)
    assert reader.schema.names == ["value", "topic"]
    assert reader.read_all().to_pylist() == [{"value": b"%d" % number, "topic": topic} for number in range(3)]


def test_an_empty_topic_has_no_rows(bootstrap, topic):
    table = klamm.read_arrow(topic, bootstrap_servers=bootstrap).read_all()
    assert (table.num_rows, table.column_names) == (0, ALL)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"start": "begin"}, ConfigError, 'start=\'begin\': expected "earliest", "latest", an offset'),
        ({"start": -1}, ConfigError, "start=-1: expected"),
        ({"end": True}, ConfigError, "end=True: expected"),
        ({"end": {7: 1}}, ConfigError, "end names partition 7, but the topic has only 0 to 1"),
        ({"start": {0: -2}}, ConfigError, "start=-2: expected"),
        ({"start": datetime.datetime(2026, 1, 1)}, ConfigError, "expected a datetime with a time zone"),
        ({"columns": ["price"]}, ConfigError, "a record has no column 'price'"),
        ({"group_id": "g"}, ConfigError, "group.id has no use here"),
        ({"value_deserializer": "string"}, IllegalStateError, "would not see these records"),
    ],
)
def test_wrong_arguments_of_a_reading_are_named(bootstrap, topic, arguments, error, text):
    with pytest.raises(error, match=text):
        klamm.read_arrow(topic, bootstrap_servers=bootstrap, **arguments)


def test_a_missing_topic_is_named_and_not_created(bootstrap, admin):
    with pytest.raises(UnknownTopicOrPartitionError, match="UNKNOWN_TOPIC_OR_PARTITION: topic 'nowhere'"):
        klamm.read_arrow("nowhere", {"bootstrap.servers": bootstrap})
    assert "nowhere" not in admin.list_topics()


def test_a_reader_that_is_not_read_to_its_end_closes_its_consumer(bootstrap, topic, producer, monkeypatch):
    produce(producer, topic, 3)
    closed = []
    close = Consumer.close
    monkeypatch.setattr(Consumer, "close", lambda self, *args, **kwargs: (closed.append(self), close(self)))
    for _ in range(2):
        reader = klamm.read_arrow(topic, bootstrap_servers=bootstrap)
        if not closed:
            reader.read_next_batch()
        del reader
        gc.collect()
    assert len(closed) == 2


def test_records_that_are_deleted_during_a_reading_are_an_error(bootstrap, topic, producer, admin):
    """The consumer has fetched one batch, and fetches no more before that one is read."""
    tp = TopicPartition(topic, 0)
    for first in (0, 10):
        produce(producer, topic, 10, first=first)
    reader = klamm.read_arrow(topic, bootstrap_servers=bootstrap, max_partition_fetch_bytes=1, fetch_buffer_max_bytes=1)
    admin.delete_records({tp: 20})
    with pytest.raises(OffsetOutOfRangeError):
        reader.read_all()


def test_a_reading_ends_with_an_error_if_the_cluster_does_not_answer(tmp_path):
    """The consumer has fetched one batch of two, and fetches no more before that one is read."""
    with running_cluster(tmp_path) as cluster:
        with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            for first in (0, 10):
                produce(producer, "lost", 10, first=first)
        reader = klamm.read_arrow(
            "lost",
            bootstrap_servers=cluster.bootstrap,
            columns=["offset"],
            max_partition_fetch_bytes=1,
            fetch_buffer_max_bytes=1,
            default_api_timeout_ms=3_000,
            request_timeout_ms=1_000,
        )
        offsets = reader.read_next_batch().column(0).to_pylist()
        assert offsets == list(range(len(offsets)))
        cluster.kill()
        with pytest.raises(TimeoutError, match=r"lost-0 sent no records for default\.api\.timeout\.ms=3000"):
            offsets += [offset for batch in reader for offset in batch.column(0).to_pylist()]
    assert len(offsets) < 20
