"""A batch of writes to the store, which RocksDB applies atomically, and which never blocks inside of RocksDB.

RocksDB may block a write until it has flushed its memory, and the write holds the interpreter's lock meanwhile. If the
disk is full, the write waits for space, and every thread of the process waits with it. So RocksDB is asked to refuse a
write that would wait (`no_slowdown`), and this module tries the write again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from rocksdict import Rdict, WriteBatch, WriteOptions

NO_SPACE: Final = "No space left on device"
"""The text of ENOSPC in RocksDB's errors. rocksdict has no error code."""

_WOULD_WAIT: Final = "Write stall"
_RETRY_S: Final = 0.001
"""The pause before a refused write is tried again. RocksDB does not report when it has finished a flush."""


class StoreBatch:
    """A batch of writes that can be tried again. RocksDB's own WriteBatch cannot be used again after it was refused."""

    def __init__(self) -> None:
        self._operations: list[tuple[Callable[..., None], tuple[bytes, bytes]]] = []

    def put(self, key: bytes, value: bytes) -> None:
        self._operations.append((WriteBatch.put, (key, value)))

    def delete_range(self, begin: bytes, end: bytes) -> None:
        """Adds the deletion of all keys from `begin` to before `end`."""
        self._operations.append((WriteBatch.delete_range, (begin, end)))

    def write(self, db: Rdict) -> None:
        """Writes the batch to the page cache, and retries while RocksDB refuses it. Raises RocksDB's errors, and
        OSError if a flush found no space."""
        while not self._offer(db):
            if db.property_int_value("rocksdb.background-errors"):
                raise OSError(f"{NO_SPACE}, or another failure of RocksDB's background work: writes are blocked")
            time.sleep(_RETRY_S)

    def _offer(self, db: Rdict) -> bool:
        """Tries to write the batch. Returns False if RocksDB would have to wait."""
        batch = WriteBatch(raw_mode=True)
        for operation, arguments in self._operations:
            operation(batch, *arguments)
        try:
            db.write(batch, _without_waiting())
        except Exception as error:
            if _WOULD_WAIT not in str(error):
                raise
            return False
        return True


def _without_waiting() -> Any:
    options = WriteOptions()
    options.no_slowdown = True
    return options
