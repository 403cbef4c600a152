"""Operations on the store that RocksDB makes all or none, without ever waiting inside of RocksDB.

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
"""How RocksDB's text says ENOSPC; rocksdict has no better way to tell."""

_WOULD_WAIT: Final = "Write stall"
_RETRY_S: Final = 0.001
"""RocksDB does not tell when it has flushed."""


class StoreBatch:
    """Keeps its operations: a WriteBatch of RocksDB's is used up when it is refused."""

    def __init__(self) -> None:
        self._operations: list[tuple[Callable[..., None], tuple[bytes, bytes]]] = []

    def put(self, key: bytes, value: bytes) -> None:
        self._operations.append((WriteBatch.put, (key, value)))

    def delete_range(self, begin: bytes, end: bytes) -> None:
        """`end` is exclusive."""
        self._operations.append((WriteBatch.delete_range, (begin, end)))

    def write(self, db: Rdict) -> None:
        """Returns when it is in the page cache. Raises what RocksDB raises, and OSError when a flush found no space."""
        while not self._offer(db):
            if db.property_int_value("rocksdb.background-errors"):
                raise OSError(f"{NO_SPACE}, or another failure of RocksDB's background work: writes are blocked")
            time.sleep(_RETRY_S)

    def _offer(self, db: Rdict) -> bool:
        """Whether it was taken."""
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
