"""Marks by id: one row for each processed record of a group, with an id that the user takes from the record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from klamm.consumer.record import ConsumerRecord
from klamm.errors import IllegalStateError
from klamm.idempotence.database import Connection, Cursor, Database, Effect
from klamm.process import PROCESS

TABLE: Final = "klamm_processed_ids"
_COLUMNS: Final = (
    "group_id TEXT NOT NULL, record_id TEXT NOT NULL, processed_at_ms BIGINT NOT NULL,"
    " PRIMARY KEY (group_id, record_id)"
)
_MARK: Final = (
    f"INSERT INTO {TABLE} (group_id, record_id, processed_at_ms) VALUES (:group_id, :record_id, :processed_at_ms)"
    " ON CONFLICT (group_id, record_id) DO NOTHING"
)
_DELETE: Final = f"DELETE FROM {TABLE} WHERE group_id = :group_id AND processed_at_ms < :before_ms"

IdOf = Callable[[ConsumerRecord[Any, Any]], str]
"""Returns the unique id of a record, for example from a header or the key."""


def checked_id(id_of: IdOf, record: ConsumerRecord[Any, Any]) -> str:
    """Returns the id of a record. Raises IllegalStateError if it is not a text, or is empty."""
    record_id = id_of(record)
    if not isinstance(record_id, str) or not record_id:
        raise IllegalStateError(
            f"id_of returned {record_id!r} for offset {record.offset} of {record.topic_partition}, expected a text that"
            " is not empty"
        )
    return record_id


class ProcessedIds:
    """Applies the effect of each record once, by an id that the record carries.

    The id is stored in the transaction of the effect, so a crash keeps both or none. A record whose id is stored is
    skipped, also if it is a second record that a sender sent again with the same id. The order of the records does not
    matter. The consumer must commit only records that were processed, as it does by default.

    Each record adds a row. `forget_before` deletes old rows."""

    def __init__(self, connection: Connection, *, group: str, id_of: IdOf, paramstyle: str | None = None) -> None:
        """Creates the table `klamm_processed_ids` if it is missing.

        connection: used by this object alone while `process` runs. group: the name of the work, usually the consumer's
        group.id. Each group applies its own effects. id_of: returns the id of a record, for example
        `lambda record: dict(record.headers)["id"].decode()`. paramstyle: by default that of the driver's module.
        Raises ConfigError if the connection commits automatically or its paramstyle is not known."""
        self._database = Database(connection, paramstyle)
        self._group = group
        self._id_of = id_of
        self._mark_row = self._database.statement(_MARK)
        self._delete_rows = self._database.statement(_DELETE)
        self._database.require_table(TABLE, _COLUMNS)

    def process(self, effect: Effect, *records: ConsumerRecord[Any, Any]) -> int:
        """Calls `effect(cursor, record)` for each record whose id is not stored. Commits effects and ids in one
        transaction, and returns the number of these records.

        After an exception, none of the records is processed. The exception is raised. Raises
        IllegalStateError for a record without an id, for an open transaction of the connection, and for an effect that
        ends the transaction."""
        return self._database.apply(effect, records, mark=self._mark)

    def forget_before(self, before_ms: int) -> int:
        """Deletes the ids of records that were processed before a time, in milliseconds since the epoch. Returns their
        number. A record that comes again after that is processed again."""
        with self._database.transaction() as cursor:
            arguments = self._delete_rows.arguments({"group_id": self._group, "before_ms": before_ms})
            cursor.execute(self._delete_rows.text, arguments)
            return cursor.rowcount

    def _mark(self, cursor: Cursor, record: ConsumerRecord[Any, Any]) -> bool:
        """Stores the id of the record. Returns False if it was processed before."""
        values = {
            "group_id": self._group,
            "record_id": checked_id(self._id_of, record),
            "processed_at_ms": PROCESS.get().wall_ms(),
        }
        cursor.execute(self._mark_row.text, self._mark_row.arguments(values))
        return cursor.rowcount == 1
