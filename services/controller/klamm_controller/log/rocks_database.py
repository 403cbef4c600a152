"""RocksDB as the database of a controller's log.

RocksDB may block a write until it has flushed its memory, and the write holds the interpreter's lock meanwhile. If the
disk is full, the write waits for space, and every thread of the process waits with it. So RocksDB is asked to refuse a
write that would wait (`no_slowdown`), and this module tries the write again.

After a crash, RocksDB drops the incomplete end of its write-ahead log, which has only unacknowledged writes. With any
other damage, it does not open. Its buffers and caches are small, because the log has only a few MiB.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from rocksdict import AccessType, BlockBasedOptions, Cache, DBRecoveryMode, Options, Rdict, WriteOptions
from rocksdict import WriteBatch as RocksBatch

from klamm.errors import KlammError
from klamm_controller.log.database import DiskFullError, Put, WriteBatch
from klamm_controller.log.entry_codec import CorruptLogError

NO_SPACE: Final = "No space left on device"
"""The text of ENOSPC in RocksDB's errors. rocksdict has no error code."""

_WOULD_WAIT: Final = "Write stall"
_RETRY_S: Final = 0.001
"""The pause before a refused write is tried again. RocksDB does not report when it has finished a flush."""
_WRITE_BUFFER_BYTES = 1 << 20
_BLOCK_CACHE_BYTES = 1 << 20
_WAL_BYTES_MAX = 4 << 20
_OPEN_FILES_MAX = 32
_INFO_LOG_BYTES_MAX = 256 << 10


class RocksDatabase:
    """A `klamm_controller.log.database.Database`."""

    def __init__(self, path: Path) -> None:
        """Opens or creates the database. Raises CorruptLogError, or KlammError with a one-line reason."""
        self._path = path
        try:
            self._db = self._open()
        except Exception as error:
            raise _opening_error(path, error) from error

    def _open(self) -> Rdict:
        db = Rdict(str(self._path), options=_options())
        self._failed = False
        return db

    def get(self, key: bytes) -> bytes | None:
        value: bytes | None = self._db.get(key)
        return value

    def items(self, from_key: bytes, *, backwards: bool = False) -> Iterator[tuple[bytes, bytes]]:
        return iter(self._db.items(backwards=backwards, from_key=from_key))

    def write(self, batch: WriteBatch, *, sync: bool = True) -> None:
        """Applies the batch, and waits for the disk if `sync` is set. Raises DiskFullError if there is no space.

        A write of RocksDB holds the interpreter's lock but only writes to the page cache. `flush_wal` waits for the
        disk and releases the lock. A synchronous write would block the event loop while the disk is busy."""
        try:
            if self._failed:
                self._reopen()
            write_without_waiting(self._db, batch)
            if sync:
                self._db.flush_wal(True)
        except Exception as error:
            if NO_SPACE not in str(error):
                raise
            self._failed = True
            raise DiskFullError(f"the metadata log in {self._path} has no space: {error}") from error

    def close(self) -> None:
        """Closes the database. Data are durable before this, so a failure to close loses nothing."""
        if not self._failed:
            self._db.close()
            return
        with contextlib.suppress(Exception):
            # A close flushes first, and would block on the flush that found no space.
            self._db.cancel_all_background(False)
            self._db.close()

    def _reopen(self) -> None:
        """Opens the database again, because RocksDB refuses all writes after a failed one.

        This happens before the next write and not right after the failure. Closing may take RocksDB a second, and the
        report of the full disk must not wait for it."""
        self.close()
        try:
            self._db = self._open()
        except Exception:
            self._db = Rdict(str(self._path), options=_options(), access_type=AccessType.read_only())
            raise


def write_without_waiting(db: Rdict, batch: WriteBatch) -> None:
    """Writes the batch to the page cache, and retries while RocksDB refuses it. Raises RocksDB's errors, and OSError if
    a flush found no space."""
    while not _offer(db, batch):
        if db.property_int_value("rocksdb.background-errors"):
            raise OSError(f"{NO_SPACE}, or another failure of RocksDB's background work: writes are blocked")
        time.sleep(_RETRY_S)


def _offer(db: Rdict, batch: WriteBatch) -> bool:
    """Tries to write the batch. Returns False if RocksDB would have to wait. RocksDB's own batch cannot be used again
    after it was refused."""
    offered = RocksBatch(raw_mode=True)
    for write in batch.writes:
        if isinstance(write, Put):
            offered.put(write.key, write.value)
        else:
            offered.delete_range(write.begin, write.end)
    try:
        db.write(offered, _without_waiting())
    except Exception as error:
        if _WOULD_WAIT not in str(error):
            raise
        return False
    return True


def _without_waiting() -> Any:
    options = WriteOptions()
    options.no_slowdown = True
    return options


def _opening_error(path: Path, error: Exception) -> KlammError:
    """Returns the error to raise when the database cannot be opened. rocksdict raises a bare Exception, whose text
    begins with RocksDB's status."""
    text = str(error)
    if text.startswith("Corruption"):
        return CorruptLogError(f"the metadata log in {path} is damaged: {text}")
    return KlammError(f"cannot open the metadata log in {path}: {text}")


def _options() -> Options:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_paranoid_checks(True)
    # An incomplete record at the very end is a write that was never acknowledged. Any other damage must be reported.
    options.set_wal_recovery_mode(DBRecoveryMode.tolerate_corrupted_tail_records())
    options.set_write_buffer_size(_WRITE_BUFFER_BYTES)
    options.set_max_write_buffer_number(2)
    options.set_max_total_wal_size(_WAL_BYTES_MAX)
    options.set_max_open_files(_OPEN_FILES_MAX)
    options.set_max_background_jobs(2)
    options.set_keep_log_file_num(1)
    options.set_max_log_file_size(_INFO_LOG_BYTES_MAX)
    options.set_stats_dump_period_sec(0)
    table = BlockBasedOptions()
    table.set_block_cache(Cache(_BLOCK_CACHE_BYTES))
    options.set_block_based_table_factory(table)
    return options
