"""Tests the transactional API against scripted brokers and coordinators: each rule of Kafka's TransactionManager."""

from __future__ import annotations

import threading
from collections import deque
from typing import TypeVar

import pytest

from klamm import ConsumerGroupMetadata, OffsetAndMetadata, Producer, TopicPartition
from klamm.errors import (
    AbortableTransactionError,
    CommitFailedError,
    ConfigError,
    ErrorCode,
    FatalProducerError,
    IllegalStateError,
)
from klamm.records import read_header
from tests.support.scripted_broker import Answer, Dropped, ScriptedCluster
from tests.support.waiting import wait_until

T = TypeVar("T")
T0 = TopicPartition("t", 0)
GROUP = ConsumerGroupMetadata("g", 3, "member-1", "instance-1")
OFFSETS = {T0: OffsetAndMetadata(42, "note", 5), TopicPartition("t", 1): OffsetAndMetadata(43)}


@pytest.fixture
def cluster():
    scripted = ScriptedCluster()
    scripted.create_topic("t", 2)
    with scripted.serve_in_thread():
        yield scripted


@pytest.fixture
def producer(cluster):
    with new_producer(cluster) as one:
        yield one


def new_producer(cluster, **overrides) -> Producer:
    settings = {"retry_backoff_ms": 0, "retry_backoff_max_ms": 0, "max_block_ms": 60_000, "linger_ms": 0}
    one = Producer(bootstrap_servers=cluster.bootstrap, transactional_id="payments", **(settings | overrides))
    one.init_transactions()
    return one


def names(cluster) -> list[str]:
    return [name for name, _ in cluster.transaction_calls]


def last(cluster, name: str):
    return next(
        request for transaction_call, request in reversed(cluster.transaction_calls) if transaction_call == name
    )


def headers(cluster, partition: int = 0):
    return [read_header(batch) for batch in cluster.topics["t"][partition].batches]


# States of transactions


def test_records_and_offsets_are_sent_before_end_txn(cluster, producer):
    producer.begin_transaction()
    producer.send("t", b"1", partition=0)
    producer.send("t", b"2", partition=0)
    producer.send_offsets_to_transaction(OFFSETS, GROUP)
    producer.commit_transaction()

    assert names(cluster)[0] == "init_producer_id"
    assert names(cluster)[-1] == "end_txn"
    assert set(names(cluster)[1:-1]) == {"produce", "txn_offset_commit"}
    end = last(cluster, "end_txn")
    assert (end.transactional_id, end.producer_id, end.producer_epoch) == ("payments", 7_000, 0)
    assert (end.committed, end.bump_epoch) == (True, True)
    assert {header.transactional_id for name, header in cluster.transaction_calls if name == "produce"} == {"payments"}
    assert all(header.is_transactional for header in headers(cluster))
    assert cluster.values("t") == [b"1", b"2"]


def test_init_producer_id_sends_transactional_id_and_timeout(cluster):
    new_producer(cluster, transaction_timeout_ms=12_345).close()

    request = last(cluster, "init_producer_id")
    assert (request.transactional_id, request.transaction_timeout_ms) == ("payments", 12_345)
    assert (request.producer_id, request.producer_epoch) == (-1, -1)


def test_each_transaction_has_a_new_epoch_and_sequences_from_zero(cluster, producer):
    for value in (b"1", b"2", b"3"):
        with producer.transaction():
            producer.send("t", value, partition=0)

    assert [(header.producer_id, header.producer_epoch, header.base_sequence) for header in headers(cluster)] == [
        (7_000, 0, 0),
        (7_000, 1, 0),
        (7_000, 2, 0),
    ]


def test_a_new_producer_id_is_used_by_the_next_transaction(cluster, producer):
    with producer.transaction():
        producer.send("t", b"1", partition=0)
        cluster.next_producer = (8_000, 0)
    with producer.transaction():
        producer.send("t", b"2", partition=0)

    assert [(header.producer_id, header.producer_epoch) for header in headers(cluster)] == [(7_000, 0), (8_000, 0)]


def test_offsets_are_sent_to_the_group_coordinator_with_the_group_metadata(cluster, producer):
    producer.begin_transaction()
    producer.send_offsets_to_transaction(OFFSETS, GROUP)

    request = last(cluster, "txn_offset_commit")
    assert (request.transactional_id, request.producer_id, request.producer_epoch) == ("payments", 7_000, 0)
    assert (request.group_id, request.generation_id) == ("g", 3)
    assert (request.member_id, request.group_instance_id) == ("member-1", "instance-1")
    offset = request.offsets[0]
    assert (offset.topic, offset.partition, offset.offset, offset.leader_epoch, offset.metadata) == (
        "t",
        0,
        42,
        5,
        "note",
    )


def test_an_empty_transaction_sends_no_request(cluster, producer):
    with producer.transaction():
        pass
    producer.begin_transaction()
    producer.abort_transaction()
    with producer.transaction():
        producer.send_offsets_to_transaction({}, GROUP)

    assert names(cluster) == ["init_producer_id"]


def test_an_abort_drops_unsent_records(cluster):
    with new_producer(cluster, linger_ms=60_000, delivery_timeout_ms=200_000) as producer:
        producer.begin_transaction()
        future = producer.send("t", b"1", partition=0)
        producer.abort_transaction()

        assert isinstance(future.exception(), AbortableTransactionError)
        assert names(cluster) == ["init_producer_id", "end_txn"]
        assert last(cluster, "end_txn").committed is False


def test_an_abort_waits_for_requests_in_flight(cluster, producer):
    arrived, go_on = threading.Event(), threading.Event()
    cluster.produce_answers.append(Answer(wait_for=go_on))
    producer.begin_transaction()
    future = producer.send("t", b"1", partition=0)
    aborting = threading.Thread(target=lambda: (arrived.set(), producer.abort_transaction()))
    wait_until(lambda: "produce" in names(cluster))
    aborting.start()
    arrived.wait(60)

    assert "end_txn" not in names(cluster)
    go_on.set()
    aborting.join(60)

    assert names(cluster)[-1] == "end_txn"
    assert future.done()


def test_an_exception_in_the_block_aborts_and_the_next_transaction_works(cluster, producer):
    with pytest.raises(ZeroDivisionError), producer.transaction():
        producer.send("t", b"%d" % (1 // 0), partition=0)

    with producer.transaction():
        producer.send("t", b"2", partition=0)
    assert last(cluster, "end_txn").committed is True
    with pytest.raises(ZeroDivisionError), producer.transaction():
        fail_behind(producer.send("t", b"3", partition=0))
    assert last(cluster, "end_txn").committed is False


def fail_behind(future) -> None:
    future.result()
    raise ZeroDivisionError


def test_close_aborts_the_open_transaction(cluster):
    producer = new_producer(cluster)
    producer.begin_transaction()
    producer.send("t", b"1", partition=0)

    producer.close()

    assert last(cluster, "end_txn").committed is False


# Retries


@pytest.mark.parametrize(
    "fate",
    [
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.REQUEST_TIMED_OUT,
        Dropped.BEFORE,
        Dropped.AFTER,
    ],
)
def test_transaction_requests_are_retried_until_they_succeed(cluster, fate):
    for name in ("init_producer_id", "txn_offset_commit", "end_txn"):
        cluster.transaction_script[name] = deque([fate, fate])
    with new_producer(cluster) as producer:
        producer.begin_transaction()
        producer.send("t", b"1", partition=0)
        producer.send_offsets_to_transaction(OFFSETS, GROUP)
        producer.commit_transaction()

    for name in ("init_producer_id", "txn_offset_commit", "end_txn"):
        assert names(cluster).count(name) == 3
    requests = [request for name, request in cluster.transaction_calls if name == "end_txn"]
    assert all(request == requests[0] for request in requests)


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_a_lost_coordinator_is_looked_up_again(cluster, producer, code):
    lookups = cluster.coordinator_lookups
    cluster.transaction_script["end_txn"].append(code)
    with producer.transaction():
        producer.send("t", b"1", partition=0)

    assert cluster.coordinator_lookups == lookups + 1


def test_only_the_offsets_that_failed_are_sent_again(cluster, producer):
    cluster.transaction_script["txn_offset_commit"].append(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    cluster.only_offset = T0
    producer.begin_transaction()
    producer.send_offsets_to_transaction(OFFSETS, GROUP)

    request = last(cluster, "txn_offset_commit")
    assert [(offset.topic, offset.partition) for offset in request.offsets] == [("t", 0)]


def test_a_produce_is_retried_until_the_markers_of_the_last_transaction_are_written(cluster, producer):
    cluster.produce_answers.extend([Answer(error=ErrorCode.CONCURRENT_TRANSACTIONS)] * 3)

    with producer.transaction():
        future = producer.send("t", b"1", partition=0)

    assert future.result().offset == 0


# Abortable failures


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ],
)
def test_a_failed_batch_makes_the_transaction_abortable(cluster, producer, code):
    cluster.produce_answers.append(Answer(error=code))
    producer.begin_transaction()
    assert producer.send("t", b"1", partition=0).exception().code is code

    for call in (producer.commit_transaction, lambda: producer.send("t", b"2", partition=0)):
        with pytest.raises(AbortableTransactionError) as raised:
            call()
        assert raised.value.__cause__.code is code
    with pytest.raises(AbortableTransactionError):
        producer.send_offsets_to_transaction(OFFSETS, GROUP)
    assert "end_txn" not in names(cluster)
    producer.abort_transaction()

    with producer.transaction():
        producer.send("t", b"3", partition=0)
    assert cluster.values("t") == [b"3"]


def test_batches_queued_behind_a_failed_batch_fail_with_it(cluster):
    refuse, store = threading.Event(), threading.Event()
    cluster.produce_answers.extend([Answer(error=ErrorCode.INVALID_RECORD, wait_for=refuse), Answer(wait_for=store)])
    with new_producer(cluster, linger_ms=60_000, delivery_timeout_ms=200_000, batch_size=0) as producer:
        producer.begin_transaction()
        refused = producer.send("t", b"refused", partition=0)
        wait_until(lambda: names(cluster).count("produce") == 1)
        stored = producer.send("t", b"stored", partition=1)
        wait_until(lambda: names(cluster).count("produce") == 2)
        waiting = [producer.send("t", b"waiting", partition=number % 2) for number in range(4)]
        refuse.set()

        assert refused.exception().code is ErrorCode.INVALID_RECORD
        assert all(isinstance(each.exception(), AbortableTransactionError) for each in waiting)
        assert not stored.done()
        store.set()
        assert stored.result().offset == 0
        with pytest.raises(AbortableTransactionError):
            producer.commit_transaction()
        producer.abort_transaction()
        assert names(cluster).count("produce") == 2


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.FENCED_INSTANCE_ID,
    ],
)
def test_a_member_that_left_the_group_has_to_abort_the_transaction(cluster, producer, code):
    cluster.transaction_script["txn_offset_commit"].append(code)
    producer.begin_transaction()

    with pytest.raises(AbortableTransactionError) as raised:
        producer.send_offsets_to_transaction(OFFSETS, GROUP)

    assert raised.value.__cause__ is not None
    with pytest.raises(AbortableTransactionError) as again:
        producer.commit_transaction()
    is_member_error = code is not ErrorCode.FENCED_INSTANCE_ID
    assert isinstance(again.value.__cause__, CommitFailedError) == is_member_error
    producer.abort_transaction()
    assert last(cluster, "end_txn").committed is False


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
    ],
)
def test_refused_offsets_make_the_transaction_abortable(cluster, producer, code):
    cluster.transaction_script["txn_offset_commit"].append(code)
    with pytest.raises(AbortableTransactionError), producer.transaction():
        producer.send_offsets_to_transaction(OFFSETS, GROUP)

    assert last(cluster, "end_txn").committed is False


@pytest.mark.parametrize("code", [ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.UNKNOWN_PRODUCER_ID])
def test_a_commit_refused_with_an_abortable_error_aborts_the_transaction(cluster, producer, code):
    cluster.transaction_script["end_txn"].append(code)
    with pytest.raises(AbortableTransactionError), producer.transaction():
        producer.send("t", b"1", partition=0)

    assert [request.committed for name, request in cluster.transaction_calls if name == "end_txn"] == [True, False]
    with producer.transaction():
        producer.send("t", b"2", partition=0)


# Fatal failures


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("end_txn", ErrorCode.PRODUCER_FENCED),
        ("end_txn", ErrorCode.INVALID_PRODUCER_EPOCH),
        ("end_txn", ErrorCode.INVALID_TXN_STATE),
        ("end_txn", ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ("end_txn", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ("end_txn", ErrorCode.UNKNOWN_SERVER_ERROR),
        ("txn_offset_commit", ErrorCode.PRODUCER_FENCED),
        ("txn_offset_commit", ErrorCode.INVALID_PRODUCER_EPOCH),
        ("txn_offset_commit", ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ("txn_offset_commit", ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
    ],
)
def test_a_producer_can_only_be_closed_after_a_fatal_error(cluster, producer, name, code):
    cluster.transaction_script[name].append(code)
    producer.begin_transaction()
    producer.send("t", b"1", partition=0)
    with pytest.raises(FatalProducerError) as raised:
        end_with_offsets(producer)

    is_fenced = code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
    assert raised.value.__cause__.code is (ErrorCode.PRODUCER_FENCED if is_fenced else code)
    for call in (
        producer.begin_transaction,
        producer.abort_transaction,
        producer.commit_transaction,
        lambda: producer.send("t", b"2", partition=0),
    ):
        with pytest.raises(FatalProducerError):
            call()


def end_with_offsets(producer) -> None:
    producer.send_offsets_to_transaction(OFFSETS, GROUP)
    producer.commit_transaction()


@pytest.mark.parametrize(
    "code", [ErrorCode.INVALID_TRANSACTION_TIMEOUT, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_REQUEST]
)
def test_a_fatal_error_of_init_transactions_is_final(cluster, code):
    cluster.transaction_script["init_producer_id"].append(code)
    producer = Producer(bootstrap_servers=cluster.bootstrap, transactional_id="payments")
    with producer:
        with pytest.raises(FatalProducerError):
            producer.init_transactions()
        with pytest.raises(FatalProducerError):
            producer.begin_transaction()


@pytest.mark.parametrize("code", [ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING])
def test_a_fencing_error_of_a_produce_is_fatal(cluster, producer, code):
    cluster.produce_answers.append(Answer(error=code))
    producer.begin_transaction()
    producer.send("t", b"1", partition=0)

    with pytest.raises(FatalProducerError):
        producer.commit_transaction()
    assert "end_txn" not in names(cluster)


# Misuse


def test_calls_out_of_turn_are_refused(cluster):
    producer = Producer(bootstrap_servers=cluster.bootstrap, transactional_id="payments")
    with producer:
        for call in (
            producer.begin_transaction,
            producer.commit_transaction,
            producer.abort_transaction,
            lambda: producer.send("t", b"1"),
            lambda: producer.send_offsets_to_transaction(OFFSETS, GROUP),
        ):
            with pytest.raises(IllegalStateError, match="init_transactions first"):
                call()
        producer.init_transactions()
        with pytest.raises(IllegalStateError):
            producer.init_transactions()
        for call in (
            producer.commit_transaction,
            producer.abort_transaction,
            lambda: producer.send("t", b"1"),
            lambda: producer.send_offsets_to_transaction(OFFSETS, GROUP),
        ):
            with pytest.raises(IllegalStateError, match="begin_transaction first"):
                call()
        producer.begin_transaction()
        with pytest.raises(IllegalStateError):
            producer.begin_transaction()


def test_transactional_calls_without_a_transactional_id_are_refused(cluster):
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for call in (producer.init_transactions, producer.begin_transaction, producer.commit_transaction):
            with pytest.raises(IllegalStateError, match="no transactional"):
                call()


@pytest.mark.parametrize("settings", [{"enable_idempotence": False}, {"acks": 1}, {"retries": 0}])
def test_transactions_need_idempotence(settings):
    with pytest.raises(ConfigError, match=r"transactional\.id='x' needs enable\.idempotence"):
        Producer(transactional_id="x", bootstrap_servers="localhost:1", **settings)


def test_invalid_offsets_and_group_metadata_are_refused_before_the_request(cluster, producer):
    producer.begin_transaction()

    with pytest.raises(ConfigError, match="-1 of t-0"):
        producer.send_offsets_to_transaction({T0: OffsetAndMetadata(-1)}, GROUP)
    with pytest.raises(TypeError, match="group_metadata"):
        producer.send_offsets_to_transaction(OFFSETS, "g")
    producer.send_offsets_to_transaction({}, GROUP)

    assert "txn_offset_commit" not in names(cluster)
