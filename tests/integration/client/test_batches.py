"""Tests the exactly-once batches of a Spark sink on a real cluster that is killed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from klamm import Admin, Consumer, LedgerId, NewTopic, PreparedPart, Producer, TopicPartition
from klamm.batches import BatchAbortedError, BatchRewoundError, RunFencedError
from klamm.errors import AbortableTransactionError, FatalProducerError, IllegalStateError, InvalidTxnStateError
from tests.support.cli_runner import KlammCommand
from tests.support.klamm_process import KlammProcess, running_cluster
from tests.support.violation import verdict
from tests.support.waiting import wait_until

PARTITIONS = 2
SETTINGS = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "transaction.state.log.num.partitions": "5",
}
_numbers = itertools.count()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KlammProcess]:
    with running_cluster(tmp_path_factory.mktemp("batches"), SETTINGS) as running:
        yield running


@pytest.fixture
def query(cluster: KlammProcess) -> Iterator[Query]:
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        yield Query(cluster, admin)


class Query:
    """A query with an output topic of its own."""

    def __init__(self, cluster: KlammProcess, admin: Admin) -> None:
        self.cluster, self.admin = cluster, admin
        self.topic = f"out-{next(_numbers)}"
        self.ledger = LedgerId("orders", f"query-{self.topic}")
        admin.create_topics([NewTopic(self.topic, PARTITIONS)])

    def task(self, run: str, batch: int, task: int, *values: bytes, attempt: int = 0) -> PreparedPart | None:
        """Writes and prepares a task's values as an executor does. Returns the prepared part, if there is one."""
        assert self.admin.register_run(self.ledger, run, batch)
        with self.producer(task, attempt) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            for value in values:
                producer.send(self.topic, value, partition=task)
            return producer.prepare_transaction(run, batch)

    def producer(self, task: int, attempt: int = 0) -> Producer:
        return Producer(bootstrap_servers=self.cluster.bootstrap, transactional_id=self.ledger.part(task, attempt))

    def parts(self, run: str, batch: int) -> list[PreparedPart]:
        """Returns the prepared parts of a batch of two tasks with one record each."""
        found = [self.task(run, batch, task, b"%d of batch %d" % (task, batch)) for task in range(PARTITIONS)]
        return [part for part in found if part is not None]

    def check(self, expected: list[bytes]) -> None:
        """Raises Violation unless the committed records are these values, each of them once."""
        found = self.read()
        with verdict():
            assert found == expected

    def read(self) -> list[bytes]:
        """Returns the committed values after all transactions have ended."""
        partitions = [TopicPartition(self.topic, number) for number in range(PARTITIONS)]
        ends = {}
        with Consumer(bootstrap_servers=self.cluster.bootstrap, auto_offset_reset="earliest") as consumer:
            ends = consumer.end_offsets(partitions)
        values: list[bytes] = []
        with Consumer(
            bootstrap_servers=self.cluster.bootstrap, auto_offset_reset="earliest", isolation_level="read_committed"
        ) as consumer:
            consumer.assign(partitions)

            def poll() -> None:
                for records in consumer.poll(200).values():
                    values.extend(record.value for record in records)

            wait_until(
                lambda: all(consumer.position(tp) >= end for tp, end in ends.items()),
                "a transaction stays open",
                between=poll,
            )
        return sorted(values)


def batch_values(*batches: int) -> list[bytes]:
    return sorted(b"%d of batch %d" % (task, batch) for batch in batches for task in range(PARTITIONS))


def test_a_committed_batch_is_visible_once_and_cannot_be_registered_again(query: Query) -> None:
    for batch in range(3):
        query.admin.commit_batch(query.ledger, "run", batch, query.parts("run", batch))
    query.check(batch_values(0, 1, 2))
    assert not query.admin.register_run(query.ledger, "again", 2), "the batch is written already"
    with pytest.raises(BatchRewoundError):
        query.admin.register_run(query.ledger, "restored", 1)


def test_one_producer_prepares_the_parts_of_several_tasks(query: Query) -> None:
    for batch in range(2):
        parts = []
        with query.producer(0) as producer:
            for task in range(PARTITIONS):
                query.admin.register_run(query.ledger, "run", batch)
                producer.init_transactions(query.ledger.part(task, 0))
                producer.begin_transaction()
                producer.send(query.topic, b"%d of batch %d" % (task, batch), partition=task)
                parts.append(producer.prepare_transaction("run", batch))
        assert [part.transactional_id for part in parts if part] == [query.ledger.part(task, 0) for task in (0, 1)]
        query.admin.commit_batch(query.ledger, "run", batch, [part for part in parts if part])
    query.check(batch_values(0, 1))


def test_committing_a_batch_aborts_the_parts_of_other_task_attempts(query: Query) -> None:
    parts = query.parts("run", 0)
    query.task("run", 0, 1, b"the loser's", attempt=1)
    query.admin.commit_batch(query.ledger, "run", 0, parts)
    query.check(batch_values(0))


def test_a_new_run_writes_a_prepared_but_uncommitted_batch_again(query: Query) -> None:
    query.parts("run", 0)
    query.admin.commit_batch(query.ledger, "next", 0, query.parts("next", 0))
    query.check(batch_values(0))


def test_a_fenced_run_can_neither_prepare_nor_commit_a_batch(query: Query) -> None:
    parts = query.parts("zombie", 0)
    with query.producer(0, attempt=1) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(query.topic, b"the zombie's", partition=0).result()
        assert query.admin.register_run(query.ledger, "run", 0)
        with pytest.raises(RunFencedError):
            producer.prepare_transaction("zombie", 0)
        with pytest.raises(AbortableTransactionError):
            producer.commit_transaction()
        with pytest.raises(FatalProducerError, match="PRODUCER_FENCED"):
            producer.abort_transaction()
    for ask in (
        lambda: query.admin.commit_batch(query.ledger, "zombie", 0, parts),
        lambda: query.admin.register_run(query.ledger, "zombie", 0),
    ):
        with pytest.raises(RunFencedError):
            ask()
    query.admin.commit_batch(query.ledger, "run", 0, query.parts("run", 0))
    query.check(batch_values(0))


def test_a_batch_that_one_run_aborted_can_be_committed_by_the_next_run(query: Query) -> None:
    parts = query.parts("run", 0)
    assert query.admin.abort_batch(query.ledger, "run", 0)
    with pytest.raises(BatchAbortedError):
        query.admin.commit_batch(query.ledger, "run", 0, parts)
    query.admin.commit_batch(query.ledger, "next", 0, query.parts("next", 0))
    assert not query.admin.abort_batch(query.ledger, "next", 0), "it counts"
    query.check(batch_values(0))


def test_a_server_kill_between_prepare_and_commit_of_a_batch_loses_nothing(query: Query, cluster: KlammProcess) -> None:
    parts = query.parts("run", 0)
    cluster.kill()
    cluster.start()
    query.admin.commit_batch(query.ledger, "run", 0, parts)
    query.check(batch_values(0))


def test_a_server_kill_after_a_batch_was_committed_does_not_undo_it(query: Query, cluster: KlammProcess) -> None:
    query.admin.commit_batch(query.ledger, "run", 0, query.parts("run", 0))
    cluster.kill()
    cluster.start()
    assert not query.admin.register_run(query.ledger, "next", 0)
    query.check(batch_values(0))


def test_prepared_parts_are_aborted_after_their_timeout_and_the_batch_cannot_be_committed(tmp_path: Path) -> None:
    """The timeout of prepared transactions aborts them. A later decision fails as a whole."""
    with (
        running_cluster(tmp_path, SETTINGS | {"transaction.prepared.timeout.ms": "500"}) as cluster,
        Admin(bootstrap_servers=cluster.bootstrap) as admin,
    ):
        query = Query(cluster, admin)
        parts = query.parts("run", 0)
        query.check([])
        with pytest.raises(InvalidTxnStateError):
            admin.commit_batch(query.ledger, "run", 0, parts)


def test_the_command_line_shows_ledgers_and_aborts_an_open_part(query: Query, cluster: KlammProcess) -> None:
    klamm = KlammCommand(cluster.bootstrap)
    parts = query.parts("run", 0)
    listed = {row["query_id"]: row for row in klamm("ledgers", "list", "--json").document}
    row = listed[query.ledger.query_id]
    assert (row["sink"], row["run_id"], row["committed_batch_id"]) == ("orders", "run", -1)
    assert row["prepared"] == len(parts)
    assert all(open_part.prepared_ms > 0 for open_part in query.admin.list_ledgers()[query.ledger].open_parts)
    described = klamm("ledgers", "describe", *query.ledger, "--json").document
    assert {one["transactional_id"] for one in described} == {part.transactional_id for part in parts}
    assert klamm("transactions", "abort", parts[0].transactional_id).status == 0
    with pytest.raises(InvalidTxnStateError):
        query.admin.commit_batch(query.ledger, "run", 0, parts)
    dry = klamm.ok("ledgers", "delete", *query.ledger, "--dry-run")
    assert dry.out.startswith(f"would delete the ledger of orders and {query.ledger.query_id}\nwould abort ")
    deleted = [{"sink": "orders", "query_id": query.ledger.query_id}]
    document = klamm.ok("ledgers", "delete", *query.ledger, "--dry-run", "--json").document
    assert document == {"deleted": deleted, "validate_only": True}
    assert query.ledger in query.admin.list_ledgers()
    document = klamm.ok("ledgers", "delete", *query.ledger, "--json").document
    assert document == {"deleted": deleted, "validate_only": False}
    dry_run, real = (klamm.refused(1, "ledgers", "delete", "s", "q", *options) for options in (["--dry-run"], []))
    assert dry_run == real
    assert query.ledger not in query.admin.list_ledgers()
    query.check([])


def test_a_task_without_records_has_nothing_to_prepare(query: Query) -> None:
    assert query.task("run", 0, 0) is None
    query.admin.commit_batch(query.ledger, "run", 0, [])
    assert not query.admin.register_run(query.ledger, "run", 0)


def test_a_producer_can_write_the_next_batch_after_the_last_one_is_committed(query: Query) -> None:
    query.admin.register_run(query.ledger, "run", 0)
    with query.producer(0) as producer:
        for batch in range(2):
            producer.init_transactions()
            producer.begin_transaction()
            producer.send(query.topic, b"%d" % batch, partition=0)
            part = producer.prepare_transaction("run", batch)
            assert part is not None
            with pytest.raises(IllegalStateError):
                producer.send(query.topic, b"too late", partition=0)
            query.admin.commit_batch(query.ledger, "run", batch, [part])
    query.check([b"0", b"1"])


def test_prepare_transaction_refuses_a_transactional_id_that_names_no_part(query: Query, cluster: KlammProcess) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap, transactional_id=f"plain-{query.topic}") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(query.topic, b"value", partition=0)
        with pytest.raises(FatalProducerError, match="not the transactional id of a part"):
            producer.prepare_transaction("run", 0)
