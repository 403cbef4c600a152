"""Idempotent processing with PostgreSQL, whose transactions run beside each other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from klamm import ConsumerRecord
from klamm.errors import ConfigError, IllegalStateError
from klamm.idempotence import ProcessedIds, ProcessedOffsets
from tests.support.consumer_records import consumer_record
from tests.support.postgres import programs, running_postgres
from tests.support.waiting import patience, wait_until

BIN_DIR = programs()
pytestmark = [
    pytest.mark.clients,
    pytest.mark.skipif(BIN_DIR is None, reason="there is no PostgreSQL; `make clients` installs it"),
]

Processed = ProcessedOffsets | ProcessedIds


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    assert BIN_DIR is not None
    with running_postgres(BIN_DIR) as address:
        yield address


@pytest.fixture
def connect(server: str) -> Iterator[Callable[..., Any]]:
    """Connects to an empty database."""
    opened: list[Any] = []

    def connect(**settings: Any) -> Any:
        opened.append(psycopg.connect(server, **settings))
        return opened[-1]

    with psycopg.connect(server) as first:
        first.execute("DROP SCHEMA public CASCADE")
        first.execute("CREATE SCHEMA public")
        first.execute("CREATE TABLE effects (number BIGINT)")
    yield connect
    for connection in opened:
        connection.close()


def of_offsets(connection: Any) -> ProcessedOffsets:
    return ProcessedOffsets(connection, group="billing")


def of_ids(connection: Any) -> ProcessedIds:
    return ProcessedIds(connection, group="billing", id_of=lambda record: str(record.offset))


@pytest.fixture(params=[of_offsets, of_ids])
def processed_by(request: pytest.FixtureRequest) -> Callable[[Any], Processed]:
    made: Callable[[Any], Processed] = request.param
    return made


def apply(cursor: Any, record: ConsumerRecord[Any, Any]) -> None:
    cursor.execute("INSERT INTO effects VALUES (%s)", (record.offset,))


def effects(connection: Any) -> list[int]:
    with connection.transaction():
        return [number for (number,) in connection.execute("SELECT number FROM effects ORDER BY number")]


def test_a_record_that_comes_again_is_skipped_and_a_failed_one_is_not(
    connect: Callable[..., Any], processed_by: Callable[[Any], Processed]
) -> None:
    def fail(cursor: Any, record: ConsumerRecord[Any, Any]) -> None:
        apply(cursor, record)
        raise ArithmeticError

    processed = processed_by(connect())
    assert processed.process(apply, consumer_record(0), consumer_record(1)) == 2
    with pytest.raises(ArithmeticError):
        processed.process(fail, consumer_record(2))
    assert processed_by(connect()).process(apply, *map(consumer_record, range(4))) == 2
    assert effects(connect()) == [0, 1, 2, 3]


def test_of_two_processes_with_the_same_record_one_waits_and_skips_it(
    connect: Callable[..., Any], processed_by: Callable[[Any], Processed]
) -> None:
    begun, finish = threading.Event(), threading.Event()
    counts: dict[str, int] = {}

    def slowly(cursor: Any, record: ConsumerRecord[Any, Any]) -> None:
        apply(cursor, record)
        begun.set()
        assert finish.wait(patience())

    def process(name: str, processed: Processed, effect: Any) -> None:
        counts[name] = processed.process(effect, consumer_record(7))

    first = threading.Thread(target=process, args=("first", processed_by(connect()), slowly))
    second = threading.Thread(target=process, args=("second", processed_by(connect()), apply))
    observer = connect(autocommit=True)
    first.start()
    assert begun.wait(patience())
    second.start()
    waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'INSERT INTO klamm%'"
    wait_until(lambda: observer.execute(waiting).fetchone())
    finish.set()
    first.join(patience())
    second.join(patience())

    assert counts == {"first": 1, "second": 0}
    assert effects(connect()) == [7]


def test_an_effect_that_catches_an_error_of_the_database_is_an_error(
    connect: Callable[..., Any], processed_by: Callable[[Any], Processed]
) -> None:
    """PostgreSQL would answer the commit with a rollback, and psycopg would raise nothing."""

    def careless(cursor: Any, record: ConsumerRecord[Any, Any]) -> None:
        try:
            cursor.execute("INSERT INTO missing VALUES (1)")
        except psycopg.Error:
            apply_later.append(record)

    apply_later: list[object] = []
    processed = processed_by(connect())
    with pytest.raises(IllegalStateError, match="failed transaction, because an SQL error was caught"):
        processed.process(careless, consumer_record(0))
    assert processed.process(apply, consumer_record(0)) == 1


def test_a_connection_with_autocommit_or_an_open_transaction_is_refused(
    connect: Callable[..., Any], processed_by: Callable[[Any], Processed]
) -> None:
    with pytest.raises(ConfigError, match="commits each statement"):
        processed_by(connect(autocommit=True))
    connection = connect()
    processed = processed_by(connection)
    connection.execute("SELECT 1")
    with pytest.raises(IllegalStateError, match="has an open transaction"):
        processed.process(apply, consumer_record(0))


def test_processes_that_start_together_create_the_table_once(connect: Callable[..., Any]) -> None:
    connections = [connect() for _ in range(8)]
    together = threading.Barrier(len(connections))
    made: list[int] = []

    def start(connection: Any) -> None:
        together.wait(patience())
        made.append(of_offsets(connection).process(apply, consumer_record(0)))

    threads = [threading.Thread(target=start, args=[connection]) for connection in connections]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(patience())
    assert sorted(made) == [0] * 7 + [1]
