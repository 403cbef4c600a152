"""The metadata log, its snapshot and the hard state in one RocksDB, with every call blocking.

What is promised: when `write_entries`, `write_hard_state` or `write_snapshot` returns, what it wrote survives a
crash of the machine; each of them happens wholly or not at all. A snapshot and the removal of the entries that it
replaces are one write.

After a crash RocksDB drops the torn end of its write-ahead log: only what no caller was told to be durable can be
there. Anything else that does not add up (a checksum, a gap between entries, a snapshot without an end) is damage
to what was promised, and refuses to open.

RocksDB is kept small: this log is a few MiB in a process that should be small too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rocksdict import BlockBasedOptions, Cache, DBRecoveryMode, Options, Rdict, WriteBatch

from klamm.errors import KlammError
from klamm.wire.v1.metadata_pb2 import MetadataBatch
from klamm_controller.log.entry_codec import (
    ENTRY,
    ENTRY_END,
    META,
    SNAPSHOT,
    SNAPSHOT_END,
    CorruptLogError,
    decode,
    encode,
    entry_key,
    snapshot_key,
)

FORMAT_VERSION = b"1"
_FORMAT_KEY = META + b"format"
_HARD_STATE_KEY = META + b"hard-state"

_NO_SPACE = "No space left on device"
"""How RocksDB's text says ENOSPC; rocksdict has no better way to tell."""

_WRITE_BUFFER_BYTES = 1 << 20
_BLOCK_CACHE_BYTES = 1 << 20
_WAL_BYTES_MAX = 4 << 20
_OPEN_FILES_MAX = 32
_INFO_LOG_BYTES_MAX = 256 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class HardState:
    """What a node of a quorum must never forget (Raft's currentTerm and votedFor)."""

    term: int
    voted_for: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredLog:
    """Everything the store holds: the entries follow the snapshot without a gap."""

    hard_state: HardState
    snapshot: tuple[MetadataBatch, ...]
    """Empty when there is none."""
    entries: tuple[MetadataBatch, ...]


class DiskFullError(KlammError):
    """A write found no space. Nothing of it is promised; the same write may be tried again."""


class MetadataStore:
    """An open store. Not thread-safe: one caller at a time, whatever its thread.

    Writes raise DiskFullError when there is no space; other errors are RocksDB's own."""

    def __init__(self, path: Path) -> None:
        """Opens or creates the database. Raises CorruptLogError or KlammError with the reason in one line."""
        self._path = path
        try:
            self._db = self._open()
        except Exception as error:
            raise _opening_error(path, error) from error
        try:
            self._check_format()
        except BaseException:
            self._db.close()
            raise

    def _open(self) -> Rdict:
        self._failed = False
        return Rdict(str(self._path), options=_options())

    def load(self) -> StoredLog:
        """Reads and checks everything. Raises CorruptLogError."""
        snapshot = self._read_snapshot()
        first_index = snapshot[-1].end_index if snapshot else 0
        return StoredLog(
            hard_state=self._read_hard_state(),
            snapshot=snapshot,
            entries=self._read_entries(first_index),
        )

    def write_entries(self, entries: Iterable[MetadataBatch]) -> None:
        """Appends entries, all or none."""
        batch = WriteBatch(raw_mode=True)
        for entry in entries:
            key = entry_key(entry.base_index)
            batch.put(key, encode(key, entry))
        self._write(batch)

    def write_hard_state(self, state: HardState) -> None:
        """Replaces the hard state."""
        batch = WriteBatch(raw_mode=True)
        batch.put(_HARD_STATE_KEY, f"{state.term} {state.voted_for}".encode())
        self._write(batch)

    def write_snapshot(self, chunks: Iterable[MetadataBatch]) -> None:
        """Replaces the snapshot, and drops the entries that the new one covers, all or nothing."""
        batch = WriteBatch(raw_mode=True)
        batch.delete_range(SNAPSHOT, SNAPSHOT_END)
        end_index = 0
        for number, chunk in enumerate(chunks):
            key = snapshot_key(chunk.end_index, number)
            batch.put(key, encode(key, chunk))
            end_index = chunk.end_index
        batch.delete_range(ENTRY, entry_key(end_index))
        self._write(batch)

    def close(self) -> None:
        """Releases the database. Nothing durable depends on it."""
        if not self._failed:
            self._db.close()

    def _write(self, batch: WriteBatch) -> None:
        """The first call only reaches the page cache but holds the interpreter's lock; the second one waits for the
        disk and does not. A synchronous first call would stop the event loop for as long as the disk takes."""
        try:
            if self._failed:
                self._db = self._open()
            self._db.write(batch)
            self._db.flush_wal(True)
        except Exception as error:
            if _NO_SPACE not in str(error):
                raise
            self._close_failed()
            raise DiskFullError(f"the metadata log in {self._path} has no space: {error}") from error

    def _close_failed(self) -> None:
        """After a failed write RocksDB refuses every other until it is opened again, and complains once more now."""
        self._failed = True
        with contextlib.suppress(Exception):
            self._db.close()

    def _check_format(self) -> None:
        version = self._db.get(_FORMAT_KEY)
        if version is None:
            batch = WriteBatch(raw_mode=True)
            batch.put(_FORMAT_KEY, FORMAT_VERSION)
            self._write(batch)
        elif version != FORMAT_VERSION:
            raise KlammError(
                f"the metadata log in {self._path} has format {version.decode(errors='replace')},"
                f" this version reads {FORMAT_VERSION.decode()}"
            )

    def _read_hard_state(self) -> HardState:
        value = self._db.get(_HARD_STATE_KEY)
        if value is None:
            return HardState(term=0, voted_for=-1)
        term, voted_for = map(int, value.split())
        return HardState(term=term, voted_for=voted_for)

    def _read_snapshot(self) -> tuple[MetadataBatch, ...]:
        chunks = []
        for number, (key, chunk) in enumerate(self._scan(SNAPSHOT, SNAPSHOT_END)):
            whole_so_far = chunk.snapshot_begin == (number == 0)
            if key != snapshot_key(chunk.end_index, number) or not whole_so_far:
                raise self._corrupt(f"chunk {number} of the snapshot is missing")
            chunks.append(chunk)
        if chunks and not chunks[-1].snapshot_end:
            raise self._corrupt(f"the snapshot of index {chunks[-1].end_index} ends too early")
        return tuple(chunks)

    def _read_entries(self, first_index: int) -> tuple[MetadataBatch, ...]:
        entries = []
        expected_index = first_index
        for _, entry in self._scan(ENTRY, ENTRY_END):
            if entry.base_index != expected_index:
                raise self._corrupt(
                    f"the entry at index {expected_index} is missing, the next one is {entry.base_index}"
                )
            expected_index = entry.end_index
            entries.append(entry)
        return tuple(entries)

    def _scan(self, begin: bytes, end: bytes) -> Iterator[tuple[bytes, MetadataBatch]]:
        try:
            for key, value in self._db.items(from_key=begin):
                if key >= end:
                    return
                yield key, decode(key, value)
        except CorruptLogError as error:
            raise self._corrupt(str(error)) from error

    def _corrupt(self, problem: str) -> CorruptLogError:
        return CorruptLogError(f"the metadata log in {self._path} is damaged: {problem}")


def _opening_error(path: Path, error: Exception) -> KlammError:
    """rocksdict raises a bare Exception whose text begins with RocksDB's status."""
    text = str(error)
    if text.startswith("Corruption"):
        return CorruptLogError(f"the metadata log in {path} is damaged: {text}")
    return KlammError(f"cannot open the metadata log in {path}: {text}")


def _options() -> Options:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_paranoid_checks(True)
    # An incomplete record at the very end is a write that nobody was told of; anything else must be reported.
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


def last_term(log: StoredLog) -> int:
    """The greatest term that the store has seen."""
    batches: Sequence[MetadataBatch] = log.entries or log.snapshot
    return max(log.hard_state.term, batches[-1].term if batches else 0)
