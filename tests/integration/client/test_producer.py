"""The synchronous Producer over real gRPC, against brokers that answer as each test says."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from klamm.errors import (
    EXCEPTIONS,
    BufferExhaustedError,
    DeliveryTimeoutError,
    ErrorCode,
    IllegalStateError,
    NoBrokerError,
)
from klamm.model import TopicPartition
from klamm.partitioner import key_partition
from klamm.producer import Producer, ProducerInterceptor, ProducerRecord, RecordMetadata
from klamm.records import HEADER_SIZE_BYTES, PackedRecords, encode_batch, read_header
from klamm_broker.log.producers.producer_state import ProducerRow, ProducerStates, Run
from tests.support.ports import closed_port
from tests.support.scripted_broker import Answer, ScriptedCluster, store
from tests.support.violation import verdict
from tests.support.waiting import patience, wait_until

UnknownTopicError = EXCEPTIONS[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
MessageTooLargeError = EXCEPTIONS[ErrorCode.MESSAGE_TOO_LARGE]
SHORT_MS = 2_000
"""A time-out that a test waits for: within it every answer comes, also on a busy machine."""


@contextlib.contextmanager
def producing(
    partition_count: int = 1, *, cluster: ScriptedCluster | None = None, **settings: Any
) -> Iterator[tuple[Producer, ScriptedCluster]]:
    cluster = cluster or ScriptedCluster()
    if partition_count:
        cluster.create_topic("t", partition_count)
    settings = {"linger_ms": 0, "retry_backoff_ms": 1, "retry_backoff_max_ms": 10, **settings}
    with cluster.serve_in_thread(), Producer(bootstrap_servers=cluster.bootstrap, **settings) as producer:
        yield producer, cluster


def numbered(count: int) -> list[bytes]:
    return [str(number).encode() for number in range(count)]


def test_record_arrives_and_its_place_is_told() -> None:
    with producing(3) as (producer, cluster):
        metadata = producer.send("t", b"value", b"key", timestamp_ms=77, headers=[("h", b"1"), ("n", None)])
        expected_partition = key_partition(b"key", 3)

        assert metadata.result(patience()) == RecordMetadata("t", expected_partition, 0, 77, 3, 5)
        (record,) = cluster.records("t", expected_partition)
        assert (record.key, record.value, record.timestamp_ms) == (b"key", b"value", 77)
        assert record.headers == (("h", b"1"), ("n", None))


def test_partition_can_be_named() -> None:
    with producing(3) as (producer, cluster):
        assert producer.send("t", b"v", partition=2).result(patience()).partition == 2
        assert cluster.values("t", 2) == [b"v"]


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


def test_broker_may_stamp_the_records() -> None:
    cluster = ScriptedCluster()
    cluster.log_append_time_ms = 1234
    with producing(cluster=cluster) as (producer, _):
        assert producer.send("t", b"v", timestamp_ms=5).result(patience()).timestamp_ms == 1234


# Retries


@pytest.mark.parametrize(
    "answer",
    [
        Answer(error=ErrorCode.NOT_ENOUGH_REPLICAS),
        Answer(error=ErrorCode.CORRUPT_MESSAGE),
        Answer(drop=True),
    ],
    ids=["too few replicas", "corrupt", "connection dropped"],
)
def test_retries_keep_the_order(answer: Answer) -> None:
    with producing(batch_size=200, max_request_size=1_000) as (producer, cluster):
        cluster.produce_answers.extend([Answer(), answer, answer, Answer(), answer])

        futures = [producer.send("t", value) for value in numbered(300)]

        with verdict():
            assert [future.result(patience()).offset for future in futures] == list(range(300))
            assert cluster.values("t") == numbered(300)
        assert producer.metrics()["record-retry-total"] == 3


LOST_ANSWERS = [Answer(), Answer(drop=True, append=True), Answer(drop=True, append=True), Answer(drop=True)]


def test_lost_answers_do_no_harm() -> None:
    with producing(batch_size=200, max_request_size=1_000) as (producer, cluster):
        cluster.produce_answers.extend(LOST_ANSWERS * 3)

        futures = [producer.send("t", value) for value in numbered(300)]

        with verdict():
            assert [future.result(patience()).offset for future in futures] == list(range(300))
            assert cluster.values("t") == numbered(300)
        assert producer.metrics()["record-retry-total"] == 9


def test_without_idempotence_a_lost_answer_means_at_least_once_and_still_in_order() -> None:
    with producing(batch_size=200, max_request_size=1_000, enable_idempotence=False) as (producer, cluster):
        cluster.produce_answers.extend(LOST_ANSWERS)

        for value in numbered(300):
            producer.send("t", value)
        producer.flush(patience())

        assert list(dict.fromkeys(cluster.values("t"))) == numbered(300)
        assert len(cluster.values("t")) > 300


def headers(cluster: ScriptedCluster) -> list[tuple[int, int, int]]:
    """(producer id, epoch, sequence) of each batch that was stored."""
    stored = [read_header(batch) for batch in cluster.topics["t"][0].batches]
    return [(header.producer_id, header.producer_epoch, header.base_sequence) for header in stored]


def test_a_leader_that_lost_acknowledged_records_is_written_to_in_a_new_epoch() -> None:
    """As after an unclean election."""
    with producing() as (producer, cluster):
        for value in numbered(3):
            producer.send("t", value).result(patience())
        states = cluster.topics["t"][0].producers
        states.restore([ProducerRow(1, 0, Run(0, 0, 1, 0), 0)])
        later = [producer.send("t", value).result(patience()).offset for value in (b"a", b"b")]

        with verdict():
            assert later == [3, 4]
            assert headers(cluster) == [(1, 0, 0), (1, 0, 1), (1, 0, 2), (1, 1, 0), (1, 1, 1)]


def test_a_leader_that_has_the_first_batches_of_a_request_gets_the_others() -> None:
    """The leadership moved to a replica that had not fetched all of it."""
    with producing(batch_size=100) as (producer, cluster):
        held = threading.Event()
        cluster.produce_answers.extend([Answer(wait_for=held), Answer(drop=True, append=True)])
        producer.send("t", b"first")
        values = numbered(40)
        futures = [producer.send("t", value) for value in values]
        partition = cluster.topics["t"][0]

        def lose_the_end() -> None:
            """Between the request whose answer is lost and its retry."""
            kept = partition.batches[:4]
            partition.batches, partition.producers, partition.end_offset = [], ProducerStates(), 0
            store(partition, kept)

        cluster.on_drop = lose_the_end
        held.set()
        assert [future.result(patience()).offset for future in futures] == list(range(1, 41))
        assert cluster.values("t") == [b"first", *values]
        assert {epoch for _, epoch, _ in headers(cluster)} == {0}


@pytest.mark.parametrize("acks", [0, 1])
def test_a_producer_rests_as_long_as_it_is_told(acks: int) -> None:
    told_s = 1.0
    with producing(acks=acks, enable_idempotence=False) as (producer, cluster):
        producer.send("t", b"before").result(patience())
        cluster.produce_answers.append(Answer(throttle_ms=int(told_s * 1000)))
        began_s = time.monotonic()
        producer.send("t", b"too much").result(patience())
        producer.send("t", b"after").result(patience())
        assert time.monotonic() - began_s >= told_s * 0.99
        wait_until(lambda: cluster.values("t") == [b"before", b"too much", b"after"])


def test_after_records_whose_fate_is_unknown_a_new_epoch_begins() -> None:
    with producing(request_timeout_ms=SHORT_MS, delivery_timeout_ms=SHORT_MS) as (producer, cluster):
        producer.send("t", b"known").result(patience())
        stuck = threading.Event()
        cluster.produce_answers.append(Answer(append=False, wait_for=stuck))
        with pytest.raises(DeliveryTimeoutError):
            producer.send("t", b"unknown").result(patience())
        stuck.set()
        written = [producer.send("t", value) for value in (b"a", b"b")]
        producer.flush(patience())

        assert all(future.done() for future in written)
        assert headers(cluster)[:2] == [(1, 0, 0), (1, 1, 0)]


def test_a_producer_id_is_asked_for_until_there_is_one() -> None:
    cluster = ScriptedCluster()
    cluster.producer_id_errors.extend([ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 3)
    with producing(cluster=cluster) as (producer, _):
        assert producer.send("t", b"v").result(patience()).offset == 0
        assert headers(cluster) == [(1, 0, 0)]


def test_without_a_producer_id_records_expire() -> None:
    cluster = ScriptedCluster()
    cluster.producer_id_errors.extend([ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 10_000)
    with producing(cluster=cluster, request_timeout_ms=100, delivery_timeout_ms=100) as (producer, _):
        with pytest.raises(DeliveryTimeoutError, match="never sent"):
            producer.send("t", b"v").result(patience())
        cluster.producer_id_errors.clear()


def test_a_producer_that_may_have_no_id_says_so() -> None:
    cluster = ScriptedCluster()
    cluster.producer_id_errors.append(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    with (
        producing(cluster=cluster) as (producer, _),
        pytest.raises(EXCEPTIONS[ErrorCode.CLUSTER_AUTHORIZATION_FAILED]),
    ):
        producer.send("t", b"v").result(patience())


def test_without_idempotence_no_id_is_asked_for() -> None:
    with producing(enable_idempotence=False) as (producer, cluster):
        producer.send("t", b"v").result(patience())
        assert headers(cluster) == [(-1, -1, -1)]
        assert cluster.producer_id_count == 0


def test_error_of_one_partition_does_not_hold_up_the_others() -> None:
    with producing(2, linger_ms=60_000) as (producer, cluster):
        cluster.produce_answers.append(Answer(error=ErrorCode.NOT_ENOUGH_REPLICAS, only=TopicPartition("t", 0)))

        futures = [producer.send("t", b"v", partition=partition) for partition in (0, 1)]
        producer.flush(patience())

        assert [future.exception(0) for future in futures] == [None, None]
        assert [len(seen.header.partitions) for seen in cluster.produced] == [2, 1]


def test_retries_are_limited_by_their_setting() -> None:
    with producing(retries=2) as (producer, cluster):
        cluster.usual_answer = Answer(error=ErrorCode.NOT_ENOUGH_REPLICAS)

        with pytest.raises(EXCEPTIONS[ErrorCode.NOT_ENOUGH_REPLICAS]):
            producer.send("t", b"v").result(patience())
        assert len(cluster.produced) == 3


def test_fatal_error_is_not_retried() -> None:
    with producing() as (producer, cluster):
        cluster.produce_answers.append(Answer(error=ErrorCode.INVALID_RECORD))

        with pytest.raises(EXCEPTIONS[ErrorCode.INVALID_RECORD]):
            producer.send("t", b"v").result(patience())
        assert producer.send("t", b"w").result(patience()).offset == 0
        assert producer.metrics()["record-error-total"] == 1


def test_delivery_timeout_ends_retries_and_names_the_last_error() -> None:
    with producing(delivery_timeout_ms=SHORT_MS, request_timeout_ms=SHORT_MS) as (producer, cluster):
        cluster.usual_answer = Answer(error=ErrorCode.NOT_ENOUGH_REPLICAS)

        with pytest.raises(DeliveryTimeoutError, match=r"delivery\.timeout\.ms=2000 .*NOT_ENOUGH_REPLICAS"):
            producer.send("t", b"v").result(patience())


def test_request_that_is_never_answered_fails_in_time_and_the_next_gets_through() -> None:
    release = threading.Event()
    with producing(delivery_timeout_ms=SHORT_MS, request_timeout_ms=SHORT_MS // 2) as (producer, cluster):
        cluster.produce_answers.extend([Answer(wait_for=release, append=False)] * 2)

        with pytest.raises(DeliveryTimeoutError):
            producer.send("t", b"v").result(patience())
        release.set()
        cluster.produce_answers.clear()
        producer.send("t", b"w").result(patience())


# Leaders


def test_leader_hint_is_followed_without_asking_for_metadata() -> None:
    cluster = ScriptedCluster(broker_count=2)
    with producing(cluster=cluster, retry_backoff_ms=60_000, retry_backoff_max_ms=60_000) as (producer, _):
        producer.send("t", b"first").result(patience())
        metadata_count = cluster.metadata_count
        cluster.move_leader(TopicPartition("t", 0), 1)
        cluster.produce_answers.append(Answer(leader_hint=(1, 1)))

        producer.send("t", b"second").result(patience())

        assert cluster.values("t") == [b"first", b"second"]
        assert cluster.metadata_count == metadata_count
        assert [seen.broker_id for seen in cluster.produced] == [0, 0, 1]
        # So that a broker that has not heard of it yet can wait for the news.
        assert [seen.header.partitions[0].current_leader_epoch for seen in cluster.produced] == [0, 0, 1]


def test_moved_leader_is_found_by_metadata() -> None:
    with producing(cluster=ScriptedCluster(broker_count=2)) as (producer, cluster):
        producer.send("t", b"first").result(patience())
        cluster.move_leader(TopicPartition("t", 0), 1)

        producer.send("t", b"second").result(patience())

        assert cluster.values("t") == [b"first", b"second"]


def test_news_of_another_leader_ends_the_pause() -> None:
    """The old one gives no hint; the metadata, asked at once, name the new one."""
    cluster = ScriptedCluster(broker_count=2)
    with producing(cluster=cluster, retry_backoff_ms=60_000, retry_backoff_max_ms=60_000) as (producer, _):
        producer.send("t", b"first").result(patience())
        cluster.move_leader(TopicPartition("t", 0), 1)

        producer.send("t", b"second").result(patience())

        assert cluster.values("t") == [b"first", b"second"]


def test_a_new_leader_is_asked_for_while_the_next_attempt_waits() -> None:
    """A question after each failed attempt would find it when the pause is over, or a pause later."""
    cluster = ScriptedCluster(broker_count=2)
    with producing(cluster=cluster, retry_backoff_ms=100, retry_backoff_max_ms=60_000) as (producer, _):
        producer.send("t", b"first").result(patience())
        cluster.usual_answer = Answer(error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        second = producer.send("t", b"second")
        asked_since: dict[int, int] = {}  # the number of attempts -> of metadata requests by then

        def has_asked_in_a_pause() -> bool:
            before = asked_since.setdefault(len(cluster.produced), cluster.metadata_count)
            return cluster.metadata_count >= before + 3

        wait_until(has_asked_in_a_pause)
        cluster.usual_answer = Answer()
        cluster.move_leader(TopicPartition("t", 0), 1)
        second.result(patience())


def test_a_leader_that_answers_nothing_is_asked_about() -> None:
    """It may stand still, and another lead since."""
    release = threading.Event()
    with producing(request_timeout_ms=300, delivery_timeout_ms=60_000) as (producer, cluster):
        producer.send("t", b"first").result(patience())
        metadata_count = cluster.metadata_count
        cluster.produce_answers.append(Answer(wait_for=release, append=False))

        producer.send("t", b"second").result(patience())
        release.set()

        wait_until(lambda: cluster.metadata_count > metadata_count)


def test_partition_without_leader_waits_for_one() -> None:
    with producing(cluster=ScriptedCluster(broker_count=2)) as (producer, cluster):
        producer.send("t", b"first").result(patience())
        cluster.move_leader(TopicPartition("t", 0), -1)
        future = producer.send("t", b"second")
        with pytest.raises(TimeoutError):
            future.result(0.05)

        cluster.move_leader(TopicPartition("t", 0), 1)

        assert future.result(patience()).offset == 1


def test_records_without_key_stay_in_the_clients_rack() -> None:
    cluster = ScriptedCluster(broker_count=2, racks=("a", "b"))
    with producing(8, cluster=cluster, client_rack="b", partitioner_rack_aware=True, batch_size=0) as (producer, _):
        futures = [producer.send("t", b"v") for _ in range(40)]

        assert {future.result(patience()).partition % 2 for future in futures} == {1}


# Too large


def test_too_large_batches_are_split_until_they_fit() -> None:
    cluster = ScriptedCluster()
    cluster.max_message_bytes = 1_000
    with producing(cluster=cluster, linger_ms=20) as (producer, _):
        futures = [producer.send("t", value) for value in numbered(1_000)]

        assert [future.result(patience()).offset for future in futures] == list(range(1_000))
        assert cluster.values("t") == numbered(1_000)
        assert producer.metrics()["batch-split-total"] > 1


def packed(values: list[bytes]) -> PackedRecords:
    """Records encoded as a caller that has columns encodes them."""
    batch = encode_batch([(77, None, value, ()) for value in values])
    return PackedRecords(
        data=batch[HEADER_SIZE_BYTES:], record_count=len(values), base_timestamp_ms=77, max_timestamp_ms=77
    )


def test_records_that_are_encoded_already_are_written_in_order_with_the_others() -> None:
    with producing(2, linger_ms=60_000) as (producer, cluster):
        producer.send("t", b"before", partition=1)
        future = producer.send_packed("t", packed(numbered(100)), partition=1)
        future.result(patience())
        assert cluster.values("t", 1) == [b"before", *numbered(100)]
        producer.send_packed("t", packed([b"anywhere"])).result(patience())
        assert len([*cluster.values("t", 0), *cluster.values("t", 1)]) == 102


def test_encoded_records_that_are_too_many_for_the_broker_are_split() -> None:
    cluster = ScriptedCluster()
    cluster.max_message_bytes = 1_000
    with producing(cluster=cluster) as (producer, _):
        producer.send_packed("t", packed(numbered(1_000))).result(patience())
        assert cluster.values("t") == numbered(1_000)
        with pytest.raises(MessageTooLargeError):
            producer.send_packed("t", packed([b"a", b"b" * 2_000, b"c"])).result(patience())


def test_encoded_records_wait_for_memory_and_have_to_fit_into_a_request() -> None:
    with producing(buffer_memory=20_000, batch_size=1_000, max_request_size=10_000) as (producer, cluster):
        futures = [producer.send_packed("t", packed([b"x" * 9_000])) for _ in range(10)]
        for future in futures:
            future.result(patience())
        assert cluster.values("t") == [b"x" * 9_000] * 10
        with pytest.raises(MessageTooLargeError, match=r"2 record\(s\) .*max\.request\.size allows 10000"):
            producer.send_packed("t", packed([b"x" * 9_000] * 2))


def test_record_that_is_too_large_by_itself_fails_alone() -> None:
    cluster = ScriptedCluster()
    cluster.max_message_bytes = 1_000
    outcomes: list[str] = []
    with producing(cluster=cluster, linger_ms=20) as (producer, _):
        contents = [b"a", b"b" * 2_000, b"c"]
        for content in contents:
            producer.send(
                "t",
                content,
                on_delivery=lambda metadata, error: outcomes.append(str(error or metadata)),
            )
        producer.flush(patience())

        assert cluster.values("t") == [b"a", b"c"]
        assert len(outcomes) == 3
        assert outcomes[1].startswith("MESSAGE_TOO_LARGE")


def test_record_above_max_request_size_is_refused_before_it_is_buffered() -> None:
    with producing(max_request_size=1_000) as (producer, cluster):
        with pytest.raises(MessageTooLargeError, match=r"max\.request\.size allows 1000"):
            producer.send("t", b"x" * 1_000)
        producer.flush(patience())
        assert cluster.produced == []


# Memory


def test_send_blocks_while_memory_is_used_up_and_goes_on_when_it_is_free() -> None:
    release = threading.Event()
    with producing(buffer_memory=2_000, batch_size=500) as (producer, cluster):
        cluster.produce_answers.append(Answer(wait_for=release))
        finished = threading.Event()

        def send() -> None:
            for value in numbered(200):
                producer.send("t", value)
            finished.set()

        thread = threading.Thread(target=send)
        thread.start()
        while not producer.metrics()["waiting-threads"]:
            assert not finished.wait(0.001)
        assert producer.metrics()["waiting-threads"] == 1
        release.set()
        assert finished.wait(patience())
        thread.join()
        producer.flush(patience())

        assert cluster.values("t") == numbered(200)


def test_send_gives_up_waiting_for_memory_after_max_block_ms() -> None:
    release = threading.Event()
    with producing(buffer_memory=1_000, batch_size=500, max_block_ms=SHORT_MS) as (producer, cluster):
        producer.partitions_for("t")
        cluster.produce_answers.append(Answer(wait_for=release))
        producer.send("t", b"x" * 400)
        producer.send("t", b"x" * 400)
        with pytest.raises(BufferExhaustedError, match=r"max\.block\.ms=2000.*buffer\.memory=1000"):
            producer.send("t", b"x" * 400)
        release.set()


# Flush, close, callbacks


def test_flush_does_not_wait_for_linger_but_for_every_acknowledgement() -> None:
    with producing(linger_ms=60_000) as (producer, cluster):
        future = producer.send("t", b"v")

        producer.flush(patience())

        assert future.done()
        assert cluster.values("t") == [b"v"]


def test_flush_gives_up_after_its_timeout() -> None:
    release = threading.Event()
    with producing() as (producer, cluster):
        cluster.produce_answers.append(Answer(wait_for=release))
        producer.send("t", b"v")
        with pytest.raises(TimeoutError):
            producer.flush(0.02)
        release.set()


def test_callbacks_come_in_order_and_before_flush_returns() -> None:
    delivered: list[int] = []
    with producing(batch_size=200) as (producer, _):
        for value in numbered(300):
            producer.send("t", value, on_delivery=lambda metadata, error: delivered.append(metadata.offset))
        producer.flush(patience())

        assert delivered == list(range(300))


def test_failing_callback_is_logged_and_the_rest_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    with producing() as (producer, _):
        producer.send("t", b"v", on_delivery=lambda metadata, error: 1 / 0).result(patience())
        producer.send("t", b"v").result(patience())

    assert "ZeroDivisionError" in caplog.text


def test_callback_may_send_but_not_block() -> None:
    errors: list[Exception] = []
    with producing() as (producer, cluster):

        def on_delivery(metadata: RecordMetadata | None, error: Exception | None) -> None:
            future = producer.send("t", b"second")
            for blocking in (future.result, producer.flush, producer.close):
                with pytest.raises(IllegalStateError, match="callback"):
                    blocking()
                errors.append(IllegalStateError())

        producer.send("t", b"first", on_delivery=on_delivery).result(patience())
        producer.flush(patience())

        assert len(errors) == 3
        assert cluster.values("t") == [b"first", b"second"]


def test_close_sends_what_is_buffered() -> None:
    with producing(linger_ms=60_000) as (producer, cluster):
        producer.send("t", b"v")
        producer.close(patience())
        assert cluster.values("t") == [b"v"]
        producer.close()


def test_close_with_a_timeout_fails_the_rest() -> None:
    release = threading.Event()
    with producing() as (producer, cluster):
        cluster.produce_answers.append(Answer(wait_for=release))
        in_flight = producer.send("t", b"v")
        cluster_saw = threading.Event()
        while not cluster.produced:
            cluster_saw.wait(0.001)
        waiting = producer.send("t", b"w")

        producer.close(0.02)

        for future in (in_flight, waiting):
            assert isinstance(future.exception(0), IllegalStateError)
        release.set()


def test_closed_producer_takes_no_records() -> None:
    with producing() as (producer, _):
        producer.send("t", b"v").result(patience())
        producer.close()
        with pytest.raises(IllegalStateError, match="closed"):
            producer.send("t", b"v")
        with pytest.raises(IllegalStateError, match="closed"):
            producer.send("another", b"v")


def test_send_that_waits_when_the_producer_is_closed_is_told() -> None:
    errors: list[Exception] = []
    with producing() as (producer, cluster):

        def send() -> None:
            try:
                producer.send("missing", b"v")
            except IllegalStateError as error:
                errors.append(error)

        thread = threading.Thread(target=send)
        thread.start()
        asked = threading.Event()
        while not cluster.metadata_count:
            asked.wait(0.001)
        producer.close()
        thread.join(patience())

        assert len(errors) == 1


# acks and in-flight limits


def test_acks_0_is_done_without_an_offset() -> None:
    with producing(acks=0) as (producer, cluster):
        assert producer.send("t", b"v").result(patience()).offset == -1
        assert cluster.values("t") == [b"v"]
        assert cluster.produced[0].header.acks == 0


@pytest.mark.parametrize(("setting", "acks"), [("all", -1), (1, 1)])
def test_acks_reach_the_broker(setting: object, acks: int) -> None:
    with producing(acks=setting, client_id="me") as (producer, cluster):
        producer.send("t", b"v").result(patience())
        assert (cluster.produced[0].header.acks, cluster.produced[0].header.client_id) == (acks, "me")


def test_requests_in_flight_are_limited() -> None:
    with producing(10, batch_size=100, max_in_flight_requests_per_connection=2) as (producer, cluster):
        for number in range(500):
            producer.send("t", b"v" * 50, partition=number % 10)
        producer.flush(patience())

        assert cluster.in_flight_max <= 2


def test_batches_of_a_partition_travel_together_while_it_waits_its_turn() -> None:
    release = threading.Event()
    with producing(batch_size=200) as (producer, cluster):
        cluster.produce_answers.append(Answer(wait_for=release))
        producer.send("t", b"first")
        wait_until(lambda: cluster.produced)
        for value in numbered(100):
            producer.send("t", value)
        release.set()
        producer.flush(patience())

        assert cluster.values("t") == [b"first", *numbered(100)]
        assert max(count for seen in cluster.produced for count in seen.batch_counts) > 5
        assert len(cluster.produced) < 5


# Topics and metadata


def test_unknown_topic_is_an_error_after_max_block_ms() -> None:
    with producing(max_block_ms=SHORT_MS) as (producer, _), pytest.raises(UnknownTopicError, match="'missing'"):
        producer.send("missing", b"v")


def test_topic_may_be_created_by_asking_for_it() -> None:
    cluster = ScriptedCluster()
    cluster.auto_create_partitions = 2
    with producing(0, cluster=cluster) as (producer, _):
        assert producer.partitions_for("new") == {0, 1}
        assert producer.send("new", b"v").result(patience()).offset == 0


def test_send_waits_for_a_topic_that_is_about_to_exist() -> None:
    with producing() as (producer, cluster):
        cluster.metadata_errors.extend([ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
        assert producer.send("t", b"v").result(patience()).offset == 0


@pytest.mark.parametrize("topic", ["", "a b", "..", 5, None, ["t"]])
def test_bad_topic_name_is_refused_at_once(topic: Any) -> None:
    with producing() as (producer, _), pytest.raises(EXCEPTIONS[ErrorCode.INVALID_TOPIC_EXCEPTION]):
        producer.send(topic, b"v")


def test_partition_that_there_is_not_is_refused_and_found_once_it_is_there() -> None:
    with producing(2, max_block_ms=SHORT_MS) as (producer, cluster):
        producer.send("t", b"v", partition=1).result(patience())
        with pytest.raises(UnknownTopicError, match=r"2 partition\(s\); there is no partition 2"):
            producer.send("t", b"v", partition=2)
        cluster.topics["t"].append(cluster.topics["t"][0].__class__(leader=0))

        assert producer.send("t", b"v", partition=2).result(patience()).partition == 2


def test_partitioner_that_chooses_wildly_is_told() -> None:
    with (
        producing(2, partitioner_class=lambda key, all_, available: 7) as (producer, _),
        pytest.raises(IllegalStateError, match="partitioner chose none of the 2"),
    ):
        producer.send("t", b"v")


def test_no_broker_to_be_reached_is_an_error_after_max_block_ms() -> None:
    with (
        closed_port() as port,
        Producer(bootstrap_servers=f"127.0.0.1:{port}", max_block_ms=SHORT_MS) as producer,
        pytest.raises(NoBrokerError, match=str(port)),
    ):
        producer.send("t", b"v")


# Interceptors


class Recorder(ProducerInterceptor):
    """Marks records and remembers outcomes."""

    def __init__(self) -> None:
        self.outcomes: list[int | str] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return record._replace(value=record.value + b"!")

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
        self.outcomes.append(metadata.offset if metadata else type(error).__name__)


class Broken(ProducerInterceptor):
    """Fails at everything."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        raise LookupError("broken on_send")

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
        raise LookupError("broken on_acknowledgement")


def test_interceptors_change_records_see_outcomes_and_cannot_break_anything(
    caplog: pytest.LogCaptureFixture,
) -> None:
    recorder = Recorder()
    with producing(interceptor_classes=[Broken(), recorder]) as (producer, cluster):
        producer.send("t", b"a").result(patience())
        cluster.produce_answers.append(Answer(error=ErrorCode.INVALID_RECORD))
        producer.send("t", b"b").exception(patience())

        assert cluster.values("t") == [b"a!"]
        assert recorder.outcomes == [0, "InvalidRecordError"]
    assert "broken on_send" in caplog.text
    assert "broken on_acknowledgement" in caplog.text


def test_every_record_has_an_outcome_whenever_the_producer_is_closed() -> None:
    cluster = ScriptedCluster()
    cluster.create_topic("t", 3)
    with cluster.serve_in_thread():
        for _ in range(20):
            producer = Producer(bootstrap_servers=cluster.bootstrap, linger_ms=0, batch_size=200)
            futures = [producer.send("t", value, partition=int(value) % 3) for value in numbered(60)]
            producer.close(0)
            assert all(future.done() for future in futures)
