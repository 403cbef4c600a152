"""Marks in SQLite files: effects and marks are committed or rolled back together."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from klamm import ConsumerRecord, TopicPartition
from klamm.errors import ConfigError, IllegalStateError
from klamm.idempotence import ProcessedIds, ProcessedOffsets
from tests.support.consumer_records import consumer_record

Processed = ProcessedOffsets | ProcessedIds


def apply(cursor: sqlite3.Cursor, record: ConsumerRecord[Any, Any]) -> None:
    cursor.execute("INSERT INTO effects VALUES (?)", (record.offset,))


def fail(cursor: sqlite3.Cursor, record: ConsumerRecord[Any, Any]) -> None:
    apply(cursor, record)
    raise ArithmeticError(f"offset {record.offset}")


def of_offsets(connection: sqlite3.Connection, group: str = "billing") -> ProcessedOffsets:
    return ProcessedOffsets(connection, group=group)


def of_ids(connection: sqlite3.Connection, group: str = "billing") -> ProcessedIds:
    return ProcessedIds(connection, group=group, id_of=lambda record: f"{record.topic_partition}@{record.offset}")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "effects.db"


@pytest.fixture
def connection(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path)) as opened:
        opened.execute("CREATE TABLE effects (number INTEGER)")
        yield opened


@pytest.fixture(params=[of_offsets, of_ids])
def processed_by(request: pytest.FixtureRequest) -> Callable[..., Processed]:
    made: Callable[..., Processed] = request.param
    return made


def effects(path: Path) -> list[int]:
    """Returns the effects that are committed."""
    with closing(sqlite3.connect(path)) as reader:
        return [number for (number,) in reader.execute("SELECT number FROM effects ORDER BY rowid")]


def test_a_record_that_comes_again_is_skipped_also_by_another_process(
    path: Path, connection: sqlite3.Connection, processed_by: Callable[..., Processed]
) -> None:
    processed = processed_by(connection)
    assert processed.process(apply, *map(consumer_record, range(3))) == 3
    assert processed.process(apply, consumer_record(2)) == 0
    with closing(sqlite3.connect(path)) as another:
        assert processed_by(another).process(apply, *map(consumer_record, range(1, 5))) == 2

    assert effects(path) == [0, 1, 2, 3, 4]


def test_an_exception_rolls_back_the_effects_and_marks_of_all_records(
    path: Path, connection: sqlite3.Connection, processed_by: Callable[..., Processed]
) -> None:
    processed = processed_by(connection)
    records = [consumer_record(0), consumer_record(1)]

    def fail_at_1(cursor: sqlite3.Cursor, record: ConsumerRecord[Any, Any]) -> None:
        (fail if record.offset else apply)(cursor, record)

    with pytest.raises(ArithmeticError):
        processed.process(fail_at_1, *records)
    assert effects(path) == []
    assert processed.process(apply, *records) == 2
    assert effects(path) == [0, 1]


def test_an_interrupt_rolls_back_too(
    path: Path, connection: sqlite3.Connection, processed_by: Callable[..., Processed]
) -> None:
    def interrupted(cursor: sqlite3.Cursor, record: ConsumerRecord[Any, Any]) -> None:
        apply(cursor, record)
        raise KeyboardInterrupt

    processed = processed_by(connection)
    with pytest.raises(KeyboardInterrupt):
        processed.process(interrupted, consumer_record(0))
    assert processed.process(apply, consumer_record(0)) == 1
    assert effects(path) == [0]


def test_each_group_topic_and_partition_has_marks_of_its_own(
    path: Path, connection: sqlite3.Connection, processed_by: Callable[..., Processed]
) -> None:
    others = [consumer_record(0), consumer_record(0, partition=1), consumer_record(0, topic="refunds")]
    assert processed_by(connection).process(apply, *others) == 3
    assert processed_by(connection, "mail").process(apply, *others) == 3


def test_an_effect_that_commits_is_an_error(
    connection: sqlite3.Connection, processed_by: Callable[..., Processed]
) -> None:
    def commits(cursor: sqlite3.Cursor, record: ConsumerRecord[Any, Any]) -> None:
        apply(cursor, record)
        cursor.connection.commit()

    with pytest.raises(IllegalStateError, match="an effect must neither commit nor roll back"):
        processed_by(connection).process(commits, consumer_record(0))


def test_an_open_transaction_is_refused_and_not_touched(
    path: Path, connection: sqlite3.Connection, processed_by: Callable[..., Processed]
) -> None:
    processed = processed_by(connection)
    connection.execute("INSERT INTO effects VALUES (77)")

    with pytest.raises(IllegalStateError, match="has an open transaction"):
        processed.process(apply, consumer_record(0))
    connection.commit()
    assert processed.process(apply, consumer_record(0)) == 1
    assert effects(path) == [77, 0]


def test_a_connection_that_commits_each_statement_is_refused(
    path: Path, connection: sqlite3.Connection, processed_by: Callable[..., Processed]
) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as automatic, pytest.raises(ConfigError, match="commits"):
        processed_by(automatic)
    processed = processed_by(connection)
    connection.isolation_level = None
    with pytest.raises(ConfigError, match="connect without autocommit"):
        processed.process(apply, consumer_record(0))


def test_an_unknown_paramstyle_is_refused(connection: sqlite3.Connection) -> None:
    with pytest.raises(ConfigError, match="paramstyle='percent', expected one of qmark"):
        ProcessedOffsets(connection, group="g", paramstyle="percent")


def test_a_record_after_one_that_was_rolled_back_is_refused(path: Path, connection: sqlite3.Connection) -> None:
    processed = of_offsets(connection)
    processed.process(apply, consumer_record(4))
    with pytest.raises(ArithmeticError):
        processed.process(fail, consumer_record(5), consumer_record(6))

    with pytest.raises(
        IllegalStateError, match=r"offset 5 of orders-0 was rolled back .* Seek the consumer to offset 5"
    ):
        processed.process(apply, consumer_record(7))
    processed.process(apply, consumer_record(0, partition=1))
    processed.process(apply, consumer_record(5))
    processed.process(apply, consumer_record(6))
    assert effects(path) == [4, 0, 5, 6]


def test_a_record_that_another_process_has_processed_meanwhile_leaves_no_gap(
    path: Path, connection: sqlite3.Connection
) -> None:
    processed = of_offsets(connection)
    with pytest.raises(ArithmeticError):
        processed.process(fail, consumer_record(5))
    with closing(sqlite3.connect(path)) as another:
        of_offsets(another).process(apply, consumer_record(5), consumer_record(6))

    processed.process(apply, consumer_record(7))
    assert effects(path) == [5, 6, 7]


def test_a_partition_has_one_row_with_the_next_offset(connection: sqlite3.Connection) -> None:
    processed = of_offsets(connection)
    processed.process(apply, *map(consumer_record, range(100)), consumer_record(3, partition=1))

    assert processed.next_offsets() == {TopicPartition("orders", 0): 100, TopicPartition("orders", 1): 4}
    assert connection.execute("SELECT count(*) FROM klamm_processed_offsets").fetchone() == (2,)


def test_records_of_a_forgotten_topic_are_processed_again(connection: sqlite3.Connection) -> None:
    processed = of_offsets(connection)
    processed.process(apply, consumer_record(0), consumer_record(0, topic="refunds"))
    processed.forget("orders")

    assert processed.process(apply, consumer_record(0), consumer_record(0, topic="refunds")) == 1


def test_an_id_counts_once_whatever_offset_it_comes_with(path: Path, connection: sqlite3.Connection) -> None:
    processed = ProcessedIds(connection, group="billing", id_of=lambda record: dict(record.headers)["id"].decode())

    def sent(offset: int, record_id: bytes) -> ConsumerRecord[Any, Any]:
        return consumer_record(offset, headers=(("id", record_id),))

    assert processed.process(apply, sent(0, b"a"), sent(1, b"a"), sent(3, b"b")) == 2
    assert processed.process(apply, sent(2, b"c"), sent(4, b"b")) == 1
    assert effects(path) == [0, 3, 2]


@pytest.mark.parametrize("record_id", [None, "", 5, b"id"])
def test_a_record_without_an_id_is_an_error(connection: sqlite3.Connection, record_id: Any) -> None:
    processed = ProcessedIds(connection, group="billing", id_of=lambda record: record_id)

    with pytest.raises(IllegalStateError, match="offset 7 of orders-0, expected a text"):
        processed.process(apply, consumer_record(7))


def test_old_ids_are_forgotten(connection: sqlite3.Connection) -> None:
    processed = of_ids(connection)
    processed.process(apply, consumer_record(0), consumer_record(1))

    assert processed.forget_before(1) == 0
    assert processed.process(apply, consumer_record(0)) == 0
    assert processed.forget_before(1 << 50) == 2
    assert processed.process(apply, consumer_record(0)) == 1
