"""Tests how people see and end transactions: the Admin and `klamm transactions` against real services."""

from __future__ import annotations

import shutil

import pytest

from klamm import Admin, ConsumerGroupMetadata, NewTopic, OffsetAndMetadata, Producer, TopicPartition
from klamm.errors import (
    AbortableTransactionError,
    FatalProducerError,
    InvalidTxnStateError,
    TransactionalIdNotFoundError,
    UnknownTopicOrPartitionError,
    UnstableOffsetCommitError,
)
from tests.support.cli_runner import KlammCommand
from tests.support.klamm_process import KlammProcess, running_cluster
from tests.support.waiting import patience


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory):
    with running_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster.bootstrap


@pytest.fixture(scope="module")
def admin(bootstrap):
    with Admin(bootstrap_servers=bootstrap) as admin:
        yield admin


@pytest.fixture(scope="module")
def klamm(bootstrap) -> KlammCommand:
    return KlammCommand(bootstrap)


@pytest.fixture
def topic(admin, request) -> str:
    """Creates a topic with two partitions for this test only."""
    name = request.node.name.replace("[", "-").replace("]", "")
    admin.create_topics([NewTopic(name, partition_count=2)])
    return name


@pytest.fixture
def producer(bootstrap, topic):
    """Yields an initialized producer whose transactional id is the topic's name."""
    with Producer(bootstrap_servers=bootstrap, transactional_id=topic) as producer:
        producer.init_transactions()
        yield producer


def begin(producer: Producer, topic: str) -> None:
    """Begins a transaction and writes to partition 1."""
    producer.begin_transaction()
    producer.send(topic, b"value", partition=1)
    producer.flush()


def test_offsets_of_an_open_transaction_do_not_delay_the_list_of_committed_ones(admin, klamm, producer, topic):
    one, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    admin.alter_group_offsets(topic, {one: 1})
    begin(producer, topic)
    producer.send_offsets_to_transaction(
        {one: OffsetAndMetadata(2), other: OffsetAndMetadata(3)}, ConsumerGroupMetadata(topic)
    )
    assert offsets(admin.list_group_offsets(topic)) == {one: 1}
    assert offsets(admin.list_group_offsets(topic, [one, other])) == {one: 1}
    with pytest.raises(UnstableOffsetCommitError):
        admin.list_group_offsets(topic, require_stable=True, timeout_ms=300)
    assert f"would delete group {topic}: offsets of 1 partition" in klamm.ok("groups", "delete", topic, "--dry-run").out
    producer.commit_transaction()
    assert offsets(admin.list_group_offsets(topic, require_stable=True)) == {one: 2, other: 3}


def offsets(found: dict[TopicPartition, OffsetAndMetadata]) -> dict[TopicPartition, int]:
    return {tp: each.offset for tp, each in found.items()}


def test_an_open_transaction_is_listed_and_described(admin, klamm, producer, topic):
    begin(producer, topic)

    (described,) = admin.describe_transactions([topic]).values()
    assert (described.state, described.partitions) == ("Ongoing", (TopicPartition(topic, 1),))
    assert described.start_time_ms > 0
    assert admin.list_transactions(states=["ongoing"])[topic].producer_id == described.producer_id
    assert topic not in admin.list_transactions(states=["Empty"])
    assert topic not in admin.list_transactions(longer_than_ms=3_600_000)
    assert list(admin.list_transactions(producer_ids=[described.producer_id])) == [topic]
    (state,) = admin.describe_producers([TopicPartition(topic, 1)])[TopicPartition(topic, 1)]
    assert (state.producer_id, state.current_txn_start_offset) == (described.producer_id, 0)
    assert [topic, str(described.producer_id), "Ongoing"] in klamm.ok("transactions", "list").rows
    shown = klamm.ok("transactions", "describe", topic, "--json").document
    assert (shown["state"], shown["partitions"]) == ("Ongoing", [f"{topic}-1"])
    assert shown["open_ms"] >= 0

    producer.commit_transaction()
    assert "None" not in klamm.ok("transactions", "describe", topic).out


def test_a_producer_continues_after_an_operator_aborted_its_transaction(admin, producer, topic):
    begin(producer, topic)

    admin.abort_transaction(topic)

    assert admin.describe_transactions([topic])[topic].state == "CompleteAbort"
    with pytest.raises(InvalidTxnStateError):
        admin.abort_transaction(topic)
    with pytest.raises(AbortableTransactionError):
        producer.commit_transaction()
    producer.abort_transaction()
    begin(producer, topic)
    producer.commit_transaction()


def test_aborting_with_fence_stops_the_producer_of_the_transaction(admin, klamm, producer, topic):
    begin(producer, topic)
    dry = klamm.ok("transactions", "abort", topic, "--fence", "--dry-run")
    assert dry.out.startswith(f"would abort the transaction of {topic!r} in {topic}-")
    assert dry.out.endswith(", and fence its producer\n")
    document = klamm.ok("transactions", "abort", topic, "--dry-run", "--json").document
    assert (document["aborted"], document["fenced"], document["validate_only"]) == (topic, False, True)
    assert admin.describe_transactions([topic])[topic].state == "Ongoing"
    klamm.ok("transactions", "abort", topic, "--fence")
    for options in (["--dry-run"], []):
        assert "has no open transaction" in klamm.refused(1, "transactions", "abort", topic, *options)
        assert "TRANSACTIONAL_ID_NOT_FOUND" in klamm.refused(1, "transactions", "abort", "nobody", *options)
    assert admin.describe_transactions([topic])[topic].state == "Empty"
    with pytest.raises(FatalProducerError, match="PRODUCER_FENCED"):
        producer.commit_transaction()


def test_a_transaction_that_its_coordinator_knows_is_not_hanging(klamm, producer, topic):
    begin(producer, topic)
    options = ("--topic", topic, "--max-transaction-timeout-ms", 0)
    assert klamm.ok("transactions", "find-hanging", *options).rows == []
    hanging = ("--hanging-in", f"{topic}:1", "--start-offset", 0, "--max-transaction-timeout-ms", 0)
    for options in (["--dry-run"], []):
        assert "no hanging" in klamm.refused(1, "transactions", "abort", *hanging, *options)
    producer.commit_transaction()


def test_a_hanging_transaction_is_aborted_but_not_by_a_dry_run(tmp_path):
    """The coordinator loses its log, and forgets the transaction."""
    cluster = KlammProcess(tmp_path)
    cluster.start()
    klamm = KlammCommand(cluster.bootstrap)
    producer = Producer(bootstrap_servers=cluster.bootstrap, transactional_id="forgotten")
    try:
        klamm.ok("topics", "create", "lost", "--partitions", 1)
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("lost", b"x").result(patience())
        cluster.stop()
        for directory in cluster.data_dir.glob("**/__transaction_state-*"):
            shutil.rmtree(directory)
        cluster.start()
        find = ("transactions", "find-hanging", "--json", "--max-transaction-timeout-ms", 0)
        abort = ("transactions", "abort", "--hanging-in", "lost:0", "--start-offset", 0, *find[3:])
        assert klamm.ok(*abort, "--dry-run").out == "would abort the transaction in lost-0 that begins at 0\n"
        assert [(row["topic"], row["start_offset"]) for row in klamm.ok(*find).document] == [("lost", 0)]
        expected = {"aborted": None, "partition": "lost-0", "start_offset": 0, "validate_only": False}
        assert klamm.ok(*abort, "--json").document == expected
        assert klamm.ok(*find).document == []
        refused = [klamm.refused(1, *abort, *options) for options in (["--dry-run"], [])]
        assert refused == ["klamm: lost-0 has no hanging transaction that begins at 0"] * 2
    finally:
        if cluster.started:
            cluster.stop()
        producer.close(0)


def test_unknown_transactional_ids_and_partitions_are_refused(admin, klamm):
    for call in (admin.abort_transaction, lambda one: admin.fence_producers([one])):
        with pytest.raises(TransactionalIdNotFoundError):
            call("nobody")
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.describe_producers([TopicPartition("nothing", 0)], timeout_ms=2_000)
    assert "TRANSACTIONAL_ID_NOT_FOUND" in klamm.refused(1, "transactions", "describe", "nobody")


@pytest.mark.parametrize(
    "arguments",
    [
        ("abort",),
        ("abort", "id", "--hanging-in", "t:0", "--start-offset", "1"),
        ("abort", "--hanging-in", "t:0"),
        ("abort", "--hanging-in", "t", "--start-offset", "1"),
        ("list", "--state", "Open"),
    ],
)
def test_wrong_usage_of_the_transactions_command_is_refused(klamm, arguments):
    klamm.refused(2, "transactions", *arguments)
