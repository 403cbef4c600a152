"""The Producer retries when an answer is an error, or is late or lost. It keeps the order of the records."""

from __future__ import annotations

import threading
import time

import pytest

from klamm.errors import EXCEPTIONS, DeliveryTimeoutError, ErrorCode
from klamm.model import TopicPartition
from klamm.records import read_header
from klamm_broker.log.producers.producer_state import ProducerRow, ProducerStates, Run
from tests.support.scripted_broker import Answer, ScriptedCluster, store
from tests.support.scripted_producer import SHORT_MS, numbered, producing
from tests.support.violation import verdict
from tests.support.waiting import patience, wait_until


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


def test_records_whose_answers_were_lost_are_written_once_and_in_order() -> None:
    with producing(batch_size=200, max_request_size=1_000) as (producer, cluster):
        cluster.produce_answers.extend(LOST_ANSWERS * 3)

        futures = [producer.send("t", value) for value in numbered(300)]

        with verdict():
            assert [future.result(patience()).offset for future in futures] == list(range(300))
            assert cluster.values("t") == numbered(300)
        assert producer.metrics()["record-retry-total"] == 9


def test_without_idempotence_a_lost_answer_duplicates_records_but_keeps_their_order() -> None:
    with producing(batch_size=200, max_request_size=1_000, enable_idempotence=False) as (producer, cluster):
        cluster.produce_answers.extend(LOST_ANSWERS)

        for value in numbered(300):
            producer.send("t", value)
        producer.flush(patience())

        assert list(dict.fromkeys(cluster.values("t"))) == numbered(300)
        assert len(cluster.values("t")) > 300


def headers(cluster: ScriptedCluster) -> list[tuple[int, int, int]]:
    """Returns (producer id, epoch, sequence) of each stored batch."""
    stored = [read_header(batch) for batch in cluster.topics["t"][0].batches]
    return [(header.producer_id, header.producer_epoch, header.base_sequence) for header in stored]


def test_a_leader_that_lost_acknowledged_records_gets_the_next_ones_in_a_new_producer_epoch() -> None:
    """An unclean election has the same result."""
    with producing() as (producer, cluster):
        for value in numbered(3):
            producer.send("t", value).result(patience())
        states = cluster.topics["t"][0].producers
        states.restore([ProducerRow(1, 0, Run(0, 0, 1, 0), 0)])
        later = [producer.send("t", value).result(patience()).offset for value in (b"a", b"b")]

        with verdict():
            assert later == [3, 4]
            assert headers(cluster) == [(1, 0, 0), (1, 0, 1), (1, 0, 2), (1, 1, 0), (1, 1, 1)]


def test_a_retry_adds_only_the_batches_that_a_new_leader_does_not_have() -> None:
    """The leadership moved to a replica that had fetched only a part of the request."""
    with producing(batch_size=100) as (producer, cluster):
        held = threading.Event()
        cluster.produce_answers.extend([Answer(wait_for=held), Answer(drop=True, append=True)])
        producer.send("t", b"first")
        values = numbered(40)
        futures = [producer.send("t", value) for value in values]
        partition = cluster.topics["t"][0]

        def lose_the_end() -> None:
            """Removes the last batches after the request whose answer is lost, and before its retry."""
            kept = partition.batches[:4]
            partition.batches, partition.producers, partition.end_offset = [], ProducerStates(), 0
            store(partition, kept)

        cluster.on_drop = lose_the_end
        held.set()
        assert [future.result(patience()).offset for future in futures] == list(range(1, 41))
        assert cluster.values("t") == [b"first", *values]
        assert {epoch for _, epoch, _ in headers(cluster)} == {0}


@pytest.mark.parametrize("acks", [0, 1])
def test_a_producer_waits_for_the_throttle_time_of_the_answer(acks: int) -> None:
    told_s = 1.0
    with producing(acks=acks, enable_idempotence=False) as (producer, cluster):
        producer.send("t", b"before").result(patience())
        cluster.produce_answers.append(Answer(throttle_ms=int(told_s * 1000)))
        began_s = time.monotonic()
        producer.send("t", b"too much").result(patience())
        producer.send("t", b"after").result(patience())
        assert time.monotonic() - began_s >= told_s * 0.99
        wait_until(lambda: cluster.values("t") == [b"before", b"too much", b"after"])


def test_a_new_producer_epoch_starts_after_records_whose_outcome_is_unknown() -> None:
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


def test_a_producer_id_is_requested_again_until_the_broker_returns_one() -> None:
    cluster = ScriptedCluster()
    cluster.producer_id_errors.extend([ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 3)
    with producing(cluster=cluster) as (producer, _):
        assert producer.send("t", b"v").result(patience()).offset == 0
        assert headers(cluster) == [(1, 0, 0)]


def test_records_expire_while_the_producer_has_no_id() -> None:
    cluster = ScriptedCluster()
    cluster.producer_id_errors.extend([ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 10_000)
    with producing(cluster=cluster, request_timeout_ms=100, delivery_timeout_ms=100) as (producer, _):
        with pytest.raises(DeliveryTimeoutError, match="never sent"):
            producer.send("t", b"v").result(patience())
        cluster.producer_id_errors.clear()


def test_send_fails_if_the_producer_is_not_authorized_to_get_an_id() -> None:
    cluster = ScriptedCluster()
    cluster.producer_id_errors.append(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    with (
        producing(cluster=cluster) as (producer, _),
        pytest.raises(EXCEPTIONS[ErrorCode.CLUSTER_AUTHORIZATION_FAILED]),
    ):
        producer.send("t", b"v").result(patience())


def test_without_idempotence_no_producer_id_is_requested() -> None:
    with producing(enable_idempotence=False) as (producer, cluster):
        producer.send("t", b"v").result(patience())
        assert headers(cluster) == [(-1, -1, -1)]
        assert cluster.producer_id_count == 0


def test_an_error_of_one_partition_is_retried_without_the_other_partitions() -> None:
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


def test_an_unanswered_request_fails_after_the_delivery_timeout_and_the_next_one_succeeds() -> None:
    release = threading.Event()
    with producing(delivery_timeout_ms=SHORT_MS, request_timeout_ms=SHORT_MS // 2) as (producer, cluster):
        cluster.produce_answers.extend([Answer(wait_for=release, append=False)] * 2)

        with pytest.raises(DeliveryTimeoutError):
            producer.send("t", b"v").result(patience())
        release.set()
        cluster.produce_answers.clear()
        producer.send("t", b"w").result(patience())
