"""Tests batches in RocksDB: either all of their writes happen or none, however often they are submitted."""

from __future__ import annotations

from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from klamm_controller.log import rocks_database
from klamm_controller.log.database import WriteBatch
from klamm_controller.log.rocks_database import write_without_waiting


class StalledThenReady:
    """Makes RocksDB refuse the first writes, as it does while its memory is not flushed."""

    def __init__(self, db: Rdict, refusals: int, background_errors: int = 0) -> None:
        self._db = db
        self._refusals = refusals
        self._background_errors = background_errors

    def write(self, *arguments: object) -> None:
        self._db.write(*arguments)
        if self._refusals:
            self._refusals -= 1
            raise Exception("Incomplete: Write stall")

    def property_int_value(self, name: str) -> int:
        assert name == "rocksdb.background-errors"
        return self._background_errors


@pytest.fixture
def db(tmp_path: Path) -> Rdict:
    return Rdict(str(tmp_path / "db"), Options(raw_mode=True))


def batch() -> WriteBatch:
    made = WriteBatch()
    made.put(b"a", b"1")
    made.put(b"b", b"2")
    made.delete_range(b"b", b"c")
    return made


def test_the_writes_of_a_batch_are_applied_in_order(db: Rdict) -> None:
    write_without_waiting(db, batch())
    assert dict(db.items()) == {b"a": b"1"}


def test_a_batch_that_the_store_refuses_is_submitted_again(db: Rdict, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rocks_database, "_RETRY_S", 0)
    write_without_waiting(StalledThenReady(db, refusals=3), batch())
    assert dict(db.items()) == {b"a": b"1"}


def test_a_failed_flush_is_raised_as_no_space_left(db: Rdict) -> None:
    with pytest.raises(OSError, match="No space left on device"):
        write_without_waiting(StalledThenReady(db, refusals=1, background_errors=1), batch())
