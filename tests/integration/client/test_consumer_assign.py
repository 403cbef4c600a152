"""Tests a Consumer with manually assigned partitions against real services."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
import time

import pytest

from klamm import (
    Admin,
    AsyncConsumer,
    Consumer,
    NewTopic,
    OffsetAndMetadata,
    Producer,
    TopicPartition,
)
from klamm.consumer import BatchTooLargeError, NoOffsetForPartitionError, PositionReset, RecordDeserializationError
from klamm.errors import (
    ConcurrentAccessError,
    ConfigError,
    IllegalStateError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
    WakeupError,
)
from tests.support.broker_harness import LONG_MS
from tests.support.klamm_process import running_cluster
from tests.support.waiting import patience, wait_until

POLL_MS = 30_000


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
    name = request.node.name.replace("[", "-").replace("]", "")
    admin.create_topics([NewTopic(name, partition_count=2)])
    return name


@pytest.fixture
def consumer(bootstrap):
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        yield consumer


def produce(bootstrap: str, topic: str, count: int, partition: int = 0, first: int = 0, **config) -> None:
    """Produces `count` records. Values are the numbers from `first`, timestamps a thousand times the number."""
    with Producer(bootstrap_servers=bootstrap, **config) as producer:
        futures = [
            producer.send(topic, b"%d" % number, partition=partition, timestamp_ms=1_000 * number)
            for number in range(first, first + count)
        ]
        producer.flush()
        for future in futures:
            future.result()


def read(consumer, count: int) -> list:
    """Polls until there are `count` records, and returns them."""
    records = []

    def poll() -> None:
        for of_partition in consumer.poll(timeout_ms=500).values():
            records.extend(of_partition)

    wait_until(lambda: len(records) >= count, lambda: f"{len(records)} records of {count} came", between=poll)
    return records


def values(records) -> list[int]:
    return [int(record.value) for record in records]


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_an_assigned_consumer_reads_all_records_in_order(bootstrap, topic, consumer, compression):
    produce(bootstrap, topic, 2_000, compression_type=compression)
    consumer.assign([TopicPartition(topic, 0)])
    records = read(consumer, 2_000)
    assert values(records) == list(range(2_000))
    assert [record.offset for record in records] == list(range(2_000))
    assert consumer.position(TopicPartition(topic, 0)) == 2_000
    assert consumer.lag(TopicPartition(topic, 0)) == 0


def test_a_poll_returns_at_most_max_poll_records(bootstrap, topic, consumer):
    produce(bootstrap, topic, 1_200)
    consumer.assign([TopicPartition(topic, 0)])
    sizes = []
    while sum(sizes) < 1_200:
        sizes += [len(records) for records in consumer.poll(timeout_ms=POLL_MS).values()]
        assert sizes[-1] <= 500
    tp = TopicPartition(topic, 0)
    consumer.seek(tp, 0)
    assert len(consumer.poll(timeout_ms=POLL_MS, max_records=7)[tp]) == 7
    assert consumer.position(tp) == 7


def test_a_poll_waits_for_new_records(bootstrap, topic, consumer):
    consumer.assign([TopicPartition(topic, 0)])
    assert consumer.poll(timeout_ms=50) == {}
    late = threading.Timer(0.3, produce, (bootstrap, topic, 1))
    late.start()
    assert values(read(consumer, 1)) == [0]
    late.join()


def test_a_poll_after_seek_returns_no_records_fetched_before(bootstrap, topic, consumer):
    produce(bootstrap, topic, 3_000)
    tp = TopicPartition(topic, 0)
    consumer.assign([tp])
    read(consumer, 10)
    for offset in (2_500, 100, 2_999, 0):
        consumer.seek(tp, offset)
        assert consumer.position(tp) == offset
        assert consumer.poll(timeout_ms=POLL_MS)[tp][0].offset == offset


def test_seek_to_the_ends_and_to_a_time(bootstrap, topic, consumer):
    produce(bootstrap, topic, 100)
    tp = TopicPartition(topic, 0)
    consumer.assign([tp])
    consumer.seek_to_end()
    assert consumer.position(tp) == 100
    consumer.seek_to_beginning(tp)
    assert consumer.position(tp) == 0
    consumer.seek_to_timestamp(49_500, tp)
    assert consumer.position(tp) == 50
    consumer.seek_to_timestamp(10**12, tp)
    assert consumer.position(tp) == 100, "nothing is that late: the end"


def test_a_consumer_looks_up_offsets_by_time_and_at_both_ends(bootstrap, topic, consumer):
    produce(bootstrap, topic, 100)
    full, empty = TopicPartition(topic, 0), TopicPartition(topic, 1)
    assert consumer.beginning_offsets([full, empty]) == {full: 0, empty: 0}
    assert consumer.end_offsets([full, empty]) == {full: 100, empty: 0}
    found = consumer.offsets_for_times({full: 10_001, empty: 0})
    assert (found[full].offset, found[full].timestamp) == (11, 11_000)
    assert found[empty] is None


def test_a_paused_partition_returns_no_records_and_loses_none(bootstrap, topic, consumer):
    loud, quiet = TopicPartition(topic, 0), TopicPartition(topic, 1)
    produce(bootstrap, topic, 1_000, partition=0)
    produce(bootstrap, topic, 1_000, partition=1)
    consumer.assign([loud, quiet])
    consumer.poll(timeout_ms=POLL_MS)
    position = consumer.position(quiet)
    consumer.pause(quiet)
    assert consumer.paused() == {quiet}
    produce(bootstrap, topic, 100, partition=0, first=1_000)
    seen = read(consumer, 1_100 - consumer.position(loud))
    assert {record.partition for record in seen} == {0}
    assert consumer.position(quiet) == position
    consumer.resume(quiet)
    rest = read(consumer, 1_000 - position)
    assert [record.offset for record in rest] == list(range(position, 1_000))


def test_iterating_over_a_consumer_advances_the_position_one_record_at_a_time(bootstrap, topic):
    produce(bootstrap, topic, 30)
    tp = TopicPartition(topic, 0)
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=POLL_MS) as consumer:
        consumer.assign([tp])
        for record in consumer:
            assert consumer.position(tp) == record.offset + 1
            if record.offset == 9:
                break
        assert consumer.poll(timeout_ms=POLL_MS)[tp][0].offset == 10, "what the loop left is polled"
        consumer.seek(tp, 20)
        assert [record.offset for record in itertools.islice(consumer, 10)] == list(range(20, 30))
    with Consumer(bootstrap_servers=bootstrap, consumer_timeout_ms=50) as consumer:
        consumer.assign([tp])
        consumer.seek(tp, 30)
        assert list(consumer) == [], "it ends when nothing comes"


@pytest.mark.parametrize(("reset", "position"), [("earliest", 40), ("latest", 100)])
def test_an_out_of_range_position_is_reset_as_auto_offset_reset_says(bootstrap, admin, topic, reset, position):
    produce(bootstrap, topic, 100)
    tp = TopicPartition(topic, 0)
    assert admin.delete_records({tp: 40}) == {tp: 40}
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset=reset) as consumer:
        consumer.assign([tp])
        consumer.seek(tp, 10)
        wait_until(lambda: consumer.position(tp) != 10, between=lambda: consumer.poll(timeout_ms=100, max_records=1))
        assert consumer.position(tp) in (position, position + 1)


@pytest.mark.parametrize(("reset", "position"), [("earliest", 40), ("latest", 100), ("nearest", 40)])
def test_the_position_reset_callback_runs_before_records_of_the_new_position_are_returned(
    bootstrap, admin, topic, reset, position
):
    produce(bootstrap, topic, 100)
    tp = TopicPartition(topic, 0)
    assert admin.delete_records({tp: 40}) == {tp: 40}
    heard: list[PositionReset] = []
    with Consumer(
        bootstrap_servers=bootstrap, group_id=topic, auto_offset_reset=reset, on_position_reset=heard.append
    ) as consumer:
        consumer.assign([tp])
        consumer.seek(tp, 10)
        told_first = []

        def poll() -> None:
            if consumer.poll(timeout_ms=100):
                told_first.append(bool(heard))

        wait_until(lambda: heard, between=poll)
        assert all(told_first), "a record of the new position came before the callback"
        assert heard == [PositionReset(tp, topic, 10, 40, 100, position)]
        metrics = consumer.metrics()
        assert metrics["position-resets-total"] == 1
        assert metrics["records-skipped-total"] == position - 10


def test_with_nearest_a_position_after_the_log_end_is_reset_to_the_log_end(bootstrap, topic):
    produce(bootstrap, topic, 10)
    tp = TopicPartition(topic, 0)
    heard: list[PositionReset] = []
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="nearest", on_position_reset=heard.append) as consumer:
        consumer.assign([tp])
        consumer.seek(tp, 500)
        wait_until(lambda: heard, between=lambda: consumer.poll(timeout_ms=100))
        assert heard == [PositionReset(tp, None, 500, 0, 10, 10)]


def test_an_async_poll_awaits_the_position_reset_callback_and_raises_its_exception(bootstrap, admin, topic):
    produce(bootstrap, topic, 20)
    tp = TopicPartition(topic, 0)
    admin.delete_records({tp: 5})

    async def stop(reset: PositionReset) -> None:
        await asyncio.sleep(0)
        raise RuntimeError(f"{reset.records_skipped} records are lost")

    async def main() -> None:
        config = {"bootstrap_servers": bootstrap, "auto_offset_reset": "earliest", "on_position_reset": stop}
        async with AsyncConsumer(**config) as consumer:
            consumer.assign([tp])
            consumer.seek(tp, 1)
            with pytest.raises(RuntimeError, match="4 records are lost"):
                await consumer.poll(timeout_ms=POLL_MS)
            records = await consumer.poll(timeout_ms=POLL_MS)
            assert records[tp][0].offset == 5

    asyncio.run(main())


def test_a_reset_by_duration_starts_at_now_minus_the_duration(bootstrap, topic):
    hour_ms = 3_600_000
    now_ms = int(time.time() * 1000)
    tp = TopicPartition(topic, 0)
    with Producer(bootstrap_servers=bootstrap) as producer:
        for hours_ago in (3, 2, 0):
            producer.send(topic, b"%d" % hours_ago, partition=0, timestamp_ms=now_ms - hours_ago * hour_ms)
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="by_duration:PT2H30M") as consumer:
        consumer.assign([tp])
        assert values(read(consumer, 2)) == [2, 0]


def test_without_a_policy_out_of_range_is_an_error_until_a_seek(bootstrap, topic):
    produce(bootstrap, topic, 10)
    tp = TopicPartition(topic, 0)
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="none") as consumer:
        consumer.assign([tp])
        with pytest.raises(NoOffsetForPartitionError) as raised:
            consumer.poll(timeout_ms=POLL_MS)
        assert raised.value.partitions == {tp}
        consumer.seek(tp, 500)
        with pytest.raises(OffsetOutOfRangeError, match="position 500"):
            read(consumer, 1)
        consumer.seek(tp, 5)
        assert values(read(consumer, 5)) == [5, 6, 7, 8, 9]


def test_a_record_that_cannot_be_deserialized_raises_an_error_and_can_be_skipped(bootstrap, topic):
    tp = TopicPartition(topic, 0)
    with Producer(bootstrap_servers=bootstrap) as producer:
        for value in (b"1", b"two", b"3"):
            producer.send(topic, value, partition=0)
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", value_deserializer=int) as consumer:
        consumer.assign([tp])
        assert [record.value for record in read(consumer, 1)] == [1]
        with pytest.raises(RecordDeserializationError) as raised:
            consumer.poll(timeout_ms=POLL_MS)
        assert consumer.position(tp) == raised.value.offset == 1
        consumer.seek(tp, 2)
        assert [record.value for record in read(consumer, 1)] == [3]


def test_an_assigned_consumer_commits_offsets_to_its_group_without_joining_it(bootstrap, topic):
    produce(bootstrap, topic, 10)
    tp, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    config = {"bootstrap_servers": bootstrap, "group_id": topic, "auto_offset_reset": "earliest"}
    with Consumer(**config, enable_auto_commit=False) as consumer:
        consumer.assign([tp, other])
        read(consumer, 10)
        consumer.commit({tp: OffsetAndMetadata(4, "note", 0)})
        assert consumer.committed([tp, other]) == {tp: OffsetAndMetadata(4, "note", 0), other: None}
    with Consumer(**config, enable_auto_commit=False) as consumer:
        consumer.assign([tp])
        assert values(read(consumer, 6)) == [4, 5, 6, 7, 8, 9]
        consumer.commit()
        assert consumer.committed([tp])[tp].offset == 10


def test_closing_commits_a_position_at_which_a_poll_found_nothing(bootstrap, topic):
    """Otherwise the next consumer would begin at the end again, and skip what came in between."""
    produce(bootstrap, topic, 10)
    tp = TopicPartition(topic, 0)
    with Consumer(bootstrap_servers=bootstrap, group_id=topic, auto_offset_reset="latest") as consumer:
        consumer.assign([tp])
        end = consumer.position(tp)
        consumer.poll(timeout_ms=1)
    with Consumer(bootstrap_servers=bootstrap, group_id=topic) as consumer:
        assert consumer.committed([tp])[tp].offset == end


def test_automatic_commits_store_the_offsets_of_returned_records(bootstrap, topic):
    produce(bootstrap, topic, 20)
    tp = TopicPartition(topic, 0)
    config = {"bootstrap_servers": bootstrap, "group_id": topic, "auto_offset_reset": "earliest"}
    with Consumer(**config) as consumer:
        consumer.assign([tp])
        consumer.poll(timeout_ms=POLL_MS, max_records=7)
    with Consumer(**config, auto_commit_interval_ms=0) as consumer:
        assert consumer.committed([tp])[tp].offset == 7, "closing committed"
        consumer.assign([tp])
        consumer.poll(timeout_ms=POLL_MS, max_records=5)
        wait_until(
            lambda: consumer.committed([tp])[tp].offset != 7,
            between=lambda: consumer.poll(timeout_ms=10, max_records=1),
        )
        assert consumer.committed([tp])[tp].offset >= 12


def test_closing_stores_no_position_over_a_commit_without_a_poll(bootstrap, topic):
    """A look-up of the position would find the end of the log. As in Kafka, only a poll does it."""
    tp = TopicPartition(topic, 0)
    produce(bootstrap, topic, 10)
    with Consumer(bootstrap_servers=bootstrap, group_id=topic) as consumer:
        consumer.assign([tp])
        for _ in range(50):  # a look-up of the position would have ended by then
            assert consumer.end_offsets([tp]) == {tp: 10}
        consumer.commit({tp: OffsetAndMetadata(7)})
    with Consumer(bootstrap_servers=bootstrap, group_id=topic) as consumer:
        assert consumer.committed([tp])[tp].offset == 7


def test_commit_callbacks_run_in_the_polling_thread(bootstrap, topic):
    tp = TopicPartition(topic, 0)
    heard = []
    with Consumer(bootstrap_servers=bootstrap, group_id=topic, enable_auto_commit=False) as consumer:
        consumer.assign([tp])
        consumer.commit({tp: 1})  # retries until the coordinator has loaded the group, which commit_async does not do
        consumer.commit_async({tp: 3}, lambda *outcome: heard.append((*outcome, threading.current_thread())))
        wait_until(lambda: heard, between=lambda: consumer.poll(timeout_ms=20))
    assert heard == [({tp: OffsetAndMetadata(3)}, None, threading.current_thread())]


def test_wakeup_ends_a_poll_from_another_thread(topic, consumer):
    consumer.assign([TopicPartition(topic, 0)])
    waker = threading.Timer(0.2, consumer.wakeup)
    waker.start()
    with pytest.raises(WakeupError):
        consumer.poll(timeout_ms=LONG_MS)
    waker.join()
    consumer.wakeup()
    with pytest.raises(WakeupError):
        consumer.poll(timeout_ms=LONG_MS)
    assert consumer.poll(timeout_ms=0) == {}


def test_a_poll_from_a_second_thread_raises_concurrent_access_error(topic, consumer):
    consumer.assign([TopicPartition(topic, 0)])
    begun, told_off = threading.Event(), threading.Event()

    def poll_too() -> None:
        begun.wait(patience())
        while not told_off.is_set():
            try:
                consumer.poll(timeout_ms=0)
            except ConcurrentAccessError:
                told_off.set()
        consumer.wakeup()

    def poll_for_long() -> None:
        while True:
            # The other thread may have entered the consumer first.
            with contextlib.suppress(ConcurrentAccessError):
                begun.set()
                consumer.poll(timeout_ms=LONG_MS)

    intruder = threading.Thread(target=poll_too)
    intruder.start()
    with pytest.raises(WakeupError):
        poll_for_long()
    intruder.join()
    assert told_off.is_set()


def test_threads_may_use_a_consumer_one_after_the_other(bootstrap, topic, consumer):
    produce(bootstrap, topic, 5)
    consumer.assign([TopicPartition(topic, 0)])
    outcome = []
    worker = threading.Thread(target=lambda: outcome.extend(read(consumer, 5)))
    worker.start()
    worker.join()
    assert values(outcome) == [0, 1, 2, 3, 4]


def test_invalid_consumer_calls_raise_errors_that_name_the_cause(topic, consumer):
    with pytest.raises(ConfigError, match=r"group\.id"):
        consumer.subscribe([topic])
    with pytest.raises(IllegalStateError, match=r"group\.id"):
        consumer.commit()
    with pytest.raises(IllegalStateError, match="not assigned"):
        consumer.position(TopicPartition(topic, 0))
    with pytest.raises(ConfigError, match="offset of 0 or more"):
        consumer.seek(TopicPartition(topic, 0), -5)
    with pytest.raises(ConfigError, match="max_records=0"):
        consumer.poll(max_records=0)
    with pytest.raises(UnknownTopicOrPartitionError):
        consumer.end_offsets([TopicPartition("no-such-topic", 0)], timeout_ms=2_000)


def test_calls_on_a_closed_consumer_raise_an_error(bootstrap):
    consumer = Consumer(bootstrap_servers=bootstrap)
    consumer.close()
    consumer.close()
    for call in (consumer.poll, consumer.unsubscribe, lambda: consumer.assign([])):
        with pytest.raises(IllegalStateError, match="closed"):
            call()


def test_interceptors_see_and_change_what_a_poll_returns(bootstrap, topic):
    class Odd:
        committed = None

        def on_consume(self, records):
            return {tp: [each for each in of_tp if each.offset % 2] for tp, of_tp in records.items()}

        def on_commit(self, offsets):
            self.committed = dict(offsets)

    class Broken:
        def on_consume(self, records):
            raise ValueError("bug")

        def on_commit(self, offsets):
            raise ValueError("bug")

    produce(bootstrap, topic, 10)
    odd, tp = Odd(), TopicPartition(topic, 0)
    config = {"bootstrap_servers": bootstrap, "group_id": topic, "auto_offset_reset": "earliest"}
    with Consumer(**config, interceptor_classes=[Broken(), odd]) as consumer:
        consumer.assign([tp])
        assert values(read(consumer, 5)) == [1, 3, 5, 7, 9]
        consumer.commit()
    assert odd.committed[tp].offset == 10


def test_memory_is_bounded_by_the_buffer_setting(bootstrap, topic):
    with Producer(bootstrap_servers=bootstrap, batch_size=16_384) as producer:
        for number in range(400):
            producer.send(topic, bytes(10_000), partition=number % 2)
    partitions = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    config = {"fetch_buffer_max_bytes": 200_000, "max_partition_fetch_bytes": 100_000, "fetch_max_bytes": 150_000}
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", **config) as consumer:
        consumer.assign(partitions)
        seen = most = 0
        while seen < 400:
            seen += sum(map(len, consumer.poll(timeout_ms=POLL_MS, max_records=3).values()))
            most = max(most, consumer.metrics()["fetch-buffered-bytes"])
    assert 0 < most <= 200_000 + 150_000


def test_a_batch_above_the_consumers_limit_is_refused_until_the_consumer_seeks_past_it(bootstrap, topic):
    tp = TopicPartition(topic, 0)
    with Producer(bootstrap_servers=bootstrap, compression_type="zstd") as producer:
        for value in (b"small", bytes(500_000), b"small, too"):
            producer.send(topic, value, partition=0).result()
    config = {
        "bootstrap_servers": bootstrap,
        "auto_offset_reset": "earliest",
        "max_partition_fetch_bytes": 10_000,
        "max_decompressed_batch_bytes": 100_000,
    }
    named = rf"{topic}-0 at offset 1 .* max\.decompressed\.batch\.bytes=100000"
    with Consumer(**config) as consumer:
        consumer.assign([tp])
        assert [record.offset for record in read(consumer, 1)] == [0]
        for _ in range(2):
            with pytest.raises(BatchTooLargeError, match=named) as raised:
                consumer.poll(timeout_ms=POLL_MS)
            assert consumer.position(tp) == 1
        consumer.seek(tp, raised.value.next_offset)
        assert [record.offset for record in read(consumer, 1)] == [2]

    async def refused() -> None:
        async with AsyncConsumer(**config) as consumer:
            consumer.assign([tp])
            consumer.seek(tp, 1)
            with pytest.raises(BatchTooLargeError, match=named):
                await consumer.poll(timeout_ms=POLL_MS)

    asyncio.run(refused())


def test_an_async_consumer_polls_and_iterates_all_records(bootstrap, topic):
    produce(bootstrap, topic, 50)
    tp = TopicPartition(topic, 0)

    async def main() -> list[int]:
        config = {"auto_offset_reset": "earliest", "consumer_timeout_ms": 2_000}
        async with AsyncConsumer(bootstrap_servers=bootstrap, **config) as consumer:
            consumer.assign([tp])
            polled = await consumer.poll(timeout_ms=POLL_MS, max_records=20)
            rest = [record async for record in consumer]
            return values(polled[tp] + rest)

    assert asyncio.run(main()) == list(range(50))


def test_two_tasks_must_not_poll_at_once(bootstrap, topic):
    async def main() -> None:
        async with AsyncConsumer(bootstrap_servers=bootstrap) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            first = asyncio.create_task(consumer.poll(timeout_ms=LONG_MS))
            await asyncio.sleep(0.05)
            with pytest.raises(ConcurrentAccessError):
                await consumer.poll(timeout_ms=0)
            consumer.wakeup()
            with pytest.raises(WakeupError):
                await first

    asyncio.run(main())
