"""Transactions on a DB-API 2.0 connection, in which a mark and an effect are committed or rolled back together.

Drivers differ in what they tell about a transaction. sqlite3 has `in_transaction`, psycopg has
`info.transaction_status`. With these two, misuse is an error. With another driver it is not noticed."""

from __future__ import annotations

import contextlib
import enum
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Protocol

from klamm.consumer.record import ConsumerRecord
from klamm.errors import ConfigError, IllegalStateError
from klamm.idempotence.statement import PARAMSTYLES, Statement, paramstyle_of

log = logging.getLogger(__name__)


class Cursor(Protocol):
    """A cursor of DB-API 2.0, as far as it is used here."""

    @property
    def rowcount(self) -> int: ...
    def execute(self, statement: Any, parameters: Any = ..., /) -> Any: ...
    def fetchall(self) -> Sequence[Any]: ...
    def close(self) -> object: ...


class Connection(Protocol):
    """A connection of DB-API 2.0, as far as it is used here."""

    def cursor(self) -> Any: ...
    def commit(self) -> object: ...
    def rollback(self) -> object: ...


Effect = Callable[[Any, ConsumerRecord[Any, Any]], object]
"""The effect of a record: a function `(cursor, record)`. It writes by the cursor, and neither commits nor rolls
back."""


class _Status(enum.Enum):
    IDLE = "has no open transaction"
    OPEN = "has an open transaction"
    FAILED = "has a failed transaction, because an SQL error was caught"
    UNKNOWN = "does not tell"


_PSYCOPG: Final = {0: _Status.IDLE, 2: _Status.OPEN, 3: _Status.FAILED}


class Database:
    """A connection, and the style of its parameters."""

    def __init__(self, connection: Connection, paramstyle: str | None) -> None:
        """Raises ConfigError if the paramstyle is not known or the connection commits automatically."""
        if paramstyle is not None and paramstyle not in PARAMSTYLES:
            raise ConfigError(f"paramstyle={paramstyle!r}, expected one of {', '.join(PARAMSTYLES)}")
        self._connection = connection
        self._paramstyle = paramstyle or paramstyle_of(connection)
        self._require_transactions()

    def statement(self, text: str) -> Statement:
        """Returns a statement for this connection."""
        return Statement(text, self._paramstyle)

    def require_table(self, name: str, columns: str) -> None:
        """Creates the table unless it exists. A user who may not create tables can use one that exists."""
        if self._has_table(name):
            return
        try:
            with self.transaction() as cursor:
                cursor.execute(f"CREATE TABLE {name} ({columns})")
        except Exception:
            # Another process may have created it in the meantime.
            if not self._has_table(name):
                raise

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Cursor]:
        """Begins a transaction for the block, and yields its cursor. Commits at the end, and rolls back after any
        exception.

        Raises ConfigError if the connection commits automatically, and IllegalStateError if it has an open
        transaction."""
        self._require_transactions()
        if self._status() in (_Status.OPEN, _Status.FAILED):
            raise IllegalStateError(
                f"the connection {self._status().value}, which would be part of the record's transaction: commit it or"
                " roll it back first"
            )
        cursor = self._connection.cursor()
        try:
            yield cursor
            self._connection.commit()
        except BaseException:
            self._roll_back()
            raise
        finally:
            cursor.close()

    def apply(
        self, effect: Effect, records: Iterable[ConsumerRecord[Any, Any]], *, mark: Callable[[Cursor, Any], bool]
    ) -> int:
        """Calls `effect(cursor, record)` for each record that gets a mark, all in one transaction. Returns the number
        of these records. `mark` returns False for a record that has a mark already.

        Raises as `transaction`, and IllegalStateError for an effect that ends the transaction."""
        count = 0
        with self.transaction() as cursor:
            for record in records:
                if mark(cursor, record):
                    effect(cursor, record)
                    self._require_open_transaction()
                    count += 1
        return count

    def _require_open_transaction(self) -> None:
        """Raises IllegalStateError if an effect has ended the transaction, or has caught an SQL error in it."""
        status = self._status()
        if status in (_Status.IDLE, _Status.FAILED):
            raise IllegalStateError(
                f"after the effect the connection {status.value}: an effect must neither commit nor roll back, nor"
                " catch errors of the database"
            )

    def _roll_back(self) -> None:
        try:
            self._connection.rollback()
        except Exception:
            # The first exception tells more. The server rolls back when the connection ends.
            log.exception("rollback failed")

    def _has_table(self, name: str) -> bool:
        try:
            with self.transaction() as cursor:
                cursor.execute(f"SELECT 1 FROM {name} WHERE 1 = 0")
        except (ConfigError, IllegalStateError):
            raise
        except Exception:  # noqa: BLE001 - each driver has its own errors
            return False
        return True

    def _require_transactions(self) -> None:
        autocommit = getattr(self._connection, "autocommit", None)
        of_sqlite = hasattr(self._connection, "in_transaction")
        without_begin = of_sqlite and getattr(self._connection, "isolation_level", "") is None
        if autocommit is True or (without_begin and autocommit is not False):
            raise ConfigError(
                "the connection commits each statement automatically, so a crash could separate the mark from the"
                " effect: connect without autocommit"
            )

    def _status(self) -> _Status:
        in_transaction = getattr(self._connection, "in_transaction", None)
        if in_transaction is not None:
            if getattr(self._connection, "autocommit", None) is False:
                return _Status.UNKNOWN  # sqlite3 of Python 3.12 then begins a transaction after each commit.
            return _Status.OPEN if in_transaction else _Status.IDLE
        code = getattr(getattr(self._connection, "info", None), "transaction_status", None)
        return _Status.UNKNOWN if code is None else _PSYCOPG.get(code, _Status.UNKNOWN)
