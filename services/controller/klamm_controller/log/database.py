"""The interface to the database of a controller's log: keys and values in the order of the keys.

A controller has RocksDB (`rocks_database.py`). A simulation has a database of its own, which can lose what was not
synced.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

from klamm.errors import KlammError


class DiskFullError(KlammError):
    """Raised if a write found no disk space. Nothing of this write counts as stored, and the caller may retry it."""


class Put(NamedTuple):
    """Sets the value of a key."""

    key: bytes
    value: bytes


class DeleteRange(NamedTuple):
    """Deletes all keys from `begin` to before `end`."""

    begin: bytes
    end: bytes


class WriteBatch:
    """Writes that are applied in their order, either all or none."""

    def __init__(self) -> None:
        self.writes: list[Put | DeleteRange] = []

    def put(self, key: bytes, value: bytes) -> None:
        self.writes.append(Put(key, value))

    def delete_range(self, begin: bytes, end: bytes) -> None:
        """Adds the deletion of all keys from `begin` to before `end`."""
        self.writes.append(DeleteRange(begin, end))


class Database(Protocol):
    """An open database. One caller at a time may use it, from any thread. Every call blocks."""

    def get(self, key: bytes) -> bytes | None:
        """Returns the value of a key, or None."""

    def items(self, from_key: bytes, *, backwards: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Yields keys and values in order. The first key is `from_key` or the next one after it, or with `backwards`
        the next one before it."""

    def write(self, batch: WriteBatch, *, sync: bool = True) -> None:
        """Applies the batch. With `sync`, it survives a crash of the machine afterwards, as does everything written
        before. Raises DiskFullError, and the database's own errors."""

    def close(self) -> None:
        """Closes the database. A failure to close loses nothing."""


class OpenDatabase(Protocol):
    """Opens or creates the database in a directory."""

    def __call__(self, path: Path, /) -> Database:
        """Raises CorruptLogError, or KlammError with a one-line reason."""
