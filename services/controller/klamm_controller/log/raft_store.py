"""A replica's log, hard state and snapshots in one RocksDB, with every call blocking.

What is promised: when `write` or `name_snapshot` returns, what it wrote survives a crash of the machine; each of them
happens wholly or not at all. The newest whole snapshot is the one that the `snapshot` key names; the parts of one that
is being saved or received lie beside it until it is named.

After a crash RocksDB drops the torn end of its write-ahead log: only what no caller was told to be durable can be
there. Anything else that does not add up (a checksum, a gap between entries, a snapshot without an end) is damage to
what was promised, and refuses to open.

The store has the directory id (KIP-853) that makes a node with an empty disk another replica. It is here and not in
`meta.properties`, where Kafka has it, and appears with the format, in one write: whatever loses the log loses the id
with it. A store of format 2 was made before there were ids: its id is empty, as in the voter sets of its time, and its
successor on an empty disk gets one.

RocksDB is kept small: this log is a few MiB in a process that should be small too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rocksdict import AccessType, BlockBasedOptions, Cache, DBRecoveryMode, Options, Rdict

from klamm.errors import KlammError
from klamm_controller.log.data_dir import random_uuid
from klamm_controller.log.entry_codec import (
    ENTRY,
    ENTRY_END,
    META,
    SNAPSHOT,
    SNAPSHOT_END,
    CorruptLogError,
    decode_entry,
    decode_meta,
    encode_entry,
    encode_meta,
    entry_key,
    seal,
    snapshot_key,
    snapshot_key_end,
    snapshot_position,
    unseal,
)
from klamm_controller.log.store_batch import NO_SPACE, StoreBatch
from klamm_controller.raft.effects import HardState, Persist, WriteSnapshotChunk
from klamm_controller.raft.membership import VoterSet
from klamm_controller.raft.messages import LogEntry, ReplicaKey, SnapshotId
from klamm_controller.raft.raft_log import START, StoredState

FORMAT_VERSION = b"3"
FORMAT_WITHOUT_DIRECTORY_ID = b"2"
_DIRECTORY_ID_KEY = META + b"directory-id"
_FORMAT_KEY = META + b"format"
_HARD_STATE_KEY = META + b"hard-state"
_BOOTSTRAP_KEY = META + b"bootstrap-voters"
_SNAPSHOT_KEY = META + b"snapshot"

_WRITE_BUFFER_BYTES = 1 << 20
_BLOCK_CACHE_BYTES = 1 << 20
_WAL_BYTES_MAX = 4 << 20
_OPEN_FILES_MAX = 32
_INFO_LOG_BYTES_MAX = 256 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class _Snapshot:
    """The newest whole snapshot."""

    id: SnapshotId
    voters: VoterSet
    size_bytes: int


class DiskFullError(KlammError):
    """A write found no space. Nothing of it is promised; the same write may be tried again."""


class RaftStore:
    """An open store. Not thread-safe: one caller at a time, whatever its thread.

    Writes raise DiskFullError when there is no space; other errors are RocksDB's own."""

    def __init__(self, path: Path) -> None:
        """Opens or creates the database, and drops what is left of unfinished snapshots.

        Raises CorruptLogError or KlammError with the reason in one line."""
        self._path = path
        try:
            self._db = self._open()
        except Exception as error:
            raise _opening_error(path, error) from error
        try:
            self.directory_id = self._check_format()
            """Random, made with the store; empty for one of format 2."""
            self._snapshot = self._read_snapshot_name()
            self._drop_unfinished_snapshots()
        except CorruptLogError as error:
            self._db.close()
            raise self._corrupt(str(error)) from error
        except BaseException:
            self._db.close()
            raise

    def _open(self) -> Rdict:
        db = Rdict(str(self._path), options=_options())
        self._failed = False
        return db

    def bootstrap_voters(self) -> VoterSet | None:
        """The voters that the log begins with; None when it has not begun. Raises CorruptLogError."""
        value = self._db.get(_BOOTSTRAP_KEY)
        if value is None:
            return None
        return VoterSet.from_bytes(decode_meta(_BOOTSTRAP_KEY, value)["voters"].encode())

    def begin(self, bootstrap_voters: VoterSet) -> None:
        """The log begins with these voters, unless it has begun."""
        if self.bootstrap_voters() is None:
            self._put(_BOOTSTRAP_KEY, encode_meta(_BOOTSTRAP_KEY, {"voters": bootstrap_voters.to_bytes().decode()}))

    def load(self) -> StoredState:
        """Reads and checks everything; the log must have begun. Raises CorruptLogError."""
        try:
            bootstrap_voters = self.bootstrap_voters()
            assert bootstrap_voters is not None, f"the log in {self._path} has not begun"
            self._check_snapshot()
            return StoredState(
                hard_state=self.read_hard_state(),
                snapshot=self.snapshot_id,
                snapshot_voters=self._snapshot.voters if self._snapshot else bootstrap_voters,
                entries=tuple(self.read_entries()),
            )
        except CorruptLogError as error:
            raise self._corrupt(str(error)) from error

    @property
    def snapshot_id(self) -> SnapshotId:
        """The newest whole snapshot, or START."""
        return self._snapshot.id if self._snapshot else START

    @property
    def snapshot_size_bytes(self) -> int:
        """The size of the newest whole snapshot; 0 if there is none."""
        return self._snapshot.size_bytes if self._snapshot else 0

    def write(self, persists: Sequence[Persist]) -> None:
        """Makes the writes durable, in order, all or none."""
        batch = StoreBatch()
        snapshot = self._snapshot
        for persist in persists:
            if persist.hard_state is not None:
                batch.put(_HARD_STATE_KEY, _encode_hard_state(persist.hard_state))
            if persist.snapshot_chunk is not None:
                snapshot = _put_chunk(batch, persist.snapshot_chunk) or snapshot
            if persist.log_end_index is not None:
                batch.delete_range(entry_key(persist.log_end_index), ENTRY_END)
            for entry in persist.entries:
                batch.put(*encode_entry(entry))
            if persist.log_start_index is not None:
                batch.delete_range(ENTRY, entry_key(persist.log_start_index))
        self._write(batch)
        self._snapshot = snapshot

    def write_snapshot_part(self, snapshot: SnapshotId, position: int, data: bytes) -> None:
        """A part of a snapshot of this replica's own; durable with `name_snapshot`."""
        batch = StoreBatch()
        if position == 0:
            batch.delete_range(snapshot_key(snapshot, 0), snapshot_key_end(snapshot))
        key = snapshot_key(snapshot, position)
        batch.put(key, seal(key, data))
        self._write(batch, sync=False)

    def name_snapshot(self, snapshot: SnapshotId, voters: VoterSet, size_bytes: int) -> None:
        """Makes a snapshot durable whose parts have all been written. It replaces the previous snapshot.

        Changes nothing if a leader's snapshot that is as new was stored since."""
        if self._snapshot is not None and self._snapshot.id.end_index >= snapshot.end_index:
            return
        stored = _Snapshot(id=snapshot, voters=voters, size_bytes=size_bytes)
        batch = StoreBatch()
        _put_name(batch, stored)
        self._write(batch)
        self._snapshot = stored

    def read_snapshot(self, snapshot: SnapshotId) -> Iterator[bytes]:
        """The bytes of a whole snapshot, in parts. Raises CorruptLogError."""
        position = 0
        for key, value in self._scan(snapshot_key(snapshot, 0), snapshot_key_end(snapshot)):
            data = unseal(key, value)
            if snapshot_position(key) != position:
                raise CorruptLogError(f"position {position} of the snapshot of index {snapshot.end_index} is missing")
            position += len(data)
            yield data

    def read_chunk(self, snapshot: SnapshotId, position: int, max_bytes: int) -> tuple[bytes, bool] | None:
        """Returns up to `max_bytes` of the snapshot from `position` on, and whether they are the last. Returns None if
        the snapshot was replaced.

        Raises CorruptLogError."""
        stored = self._snapshot
        if stored is None or stored.id != snapshot or not 0 <= position <= stored.size_bytes:
            return None
        key, value = next(iter(self._db.items(backwards=True, from_key=snapshot_key(snapshot, position))))
        skipped = position - snapshot_position(key)
        data = unseal(key, value)[skipped : skipped + max_bytes]
        return data, position + len(data) == stored.size_bytes

    def close(self) -> None:
        """Releases the database. Nothing durable depends on it."""
        if not self._failed:
            self._db.close()
            return
        with contextlib.suppress(Exception):
            # A close flushes first, and would wait for the flush that found no space.
            self._db.cancel_all_background(False)
            self._db.close()

    def _write(self, batch: StoreBatch, *, sync: bool = True) -> None:
        """The first call only reaches the page cache but holds the interpreter's lock; the second one waits for the
        disk and does not. A synchronous first call would stop the event loop for as long as the disk takes."""
        try:
            if self._failed:
                self._reopen()
            batch.write(self._db)
            if sync:
                self._db.flush_wal(True)
        except Exception as error:
            if NO_SPACE not in str(error):
                raise
            self._failed = True
            raise DiskFullError(f"the metadata log in {self._path} has no space: {error}") from error

    def _reopen(self) -> None:
        """After a failed write RocksDB refuses every other until it is opened again.

        Not done as soon as the write fails: closing may take RocksDB a second, in which nobody would know of the full
        disk."""
        self.close()
        try:
            self._db = self._open()
        except Exception:
            self._db = Rdict(str(self._path), options=_options(), access_type=AccessType.read_only())
            raise

    def _put(self, key: bytes, value: bytes) -> None:
        batch = StoreBatch()
        batch.put(key, value)
        self._write(batch)

    def _check_format(self) -> str:
        """Formats a new store; returns the directory id."""
        version = self._db.get(_FORMAT_KEY)
        if version is None:
            return self._format()
        if version == FORMAT_WITHOUT_DIRECTORY_ID:
            return ""
        if version != FORMAT_VERSION:
            raise KlammError(
                f"the metadata log in {self._path} has format {version.decode(errors='replace')},"
                f" this version reads {FORMAT_WITHOUT_DIRECTORY_ID.decode()} and {FORMAT_VERSION.decode()}"
            )
        value = self._db.get(_DIRECTORY_ID_KEY)
        if value is None:
            raise CorruptLogError("the directory-id is missing")
        return str(decode_meta(_DIRECTORY_ID_KEY, value)["directory_id"])

    def _format(self) -> str:
        directory_id = random_uuid()
        batch = StoreBatch()
        batch.put(_DIRECTORY_ID_KEY, encode_meta(_DIRECTORY_ID_KEY, {"directory_id": directory_id}))
        batch.put(_FORMAT_KEY, FORMAT_VERSION)
        self._write(batch)
        return directory_id

    def read_hard_state(self) -> HardState:
        """Raises CorruptLogError."""
        value = self._db.get(_HARD_STATE_KEY)
        if value is None:
            return HardState(term=0, voted_for=None)
        fields = decode_meta(_HARD_STATE_KEY, value)
        voted_for = fields["voted_for"]
        return HardState(term=fields["term"], voted_for=ReplicaKey(*voted_for) if voted_for else None)

    def _read_snapshot_name(self) -> _Snapshot | None:
        value = self._db.get(_SNAPSHOT_KEY)
        if value is None:
            return None
        fields = decode_meta(_SNAPSHOT_KEY, value)
        return _Snapshot(
            id=SnapshotId(end_index=fields["end_index"], term=fields["term"]),
            voters=VoterSet.from_bytes(fields["voters"].encode()),
            size_bytes=fields["size_bytes"],
        )

    def _drop_unfinished_snapshots(self) -> None:
        batch = StoreBatch()
        if self._snapshot is None:
            batch.delete_range(SNAPSHOT, SNAPSHOT_END)
        else:
            batch.delete_range(SNAPSHOT, snapshot_key(self._snapshot.id, 0))
            batch.delete_range(snapshot_key_end(self._snapshot.id), SNAPSHOT_END)
        self._write(batch)

    def _check_snapshot(self) -> None:
        if self._snapshot is None:
            return
        size_bytes = sum(map(len, self.read_snapshot(self._snapshot.id)))
        if size_bytes != self._snapshot.size_bytes:
            raise CorruptLogError(
                f"the snapshot of index {self._snapshot.id.end_index} is incomplete: found {size_bytes}"
                f" of {self._snapshot.size_bytes} bytes"
            )

    def read_entries(self) -> Iterator[LogEntry]:
        """They begin at or below the snapshot's end, reach it, and have no gap. Raises CorruptLogError at the
        first that does not fit."""
        expected_index = None
        for key, value in self._scan(ENTRY, ENTRY_END):
            entry = decode_entry(key, value)
            if expected_index is None:
                expected_index = min(entry.index, self.snapshot_id.end_index)
            if entry.index != expected_index:
                raise CorruptLogError(f"the entry at index {expected_index} is missing, the next one is {entry.index}")
            yield entry
            expected_index += 1
        if expected_index is not None and expected_index < self.snapshot_id.end_index:
            raise CorruptLogError(f"the entry at index {expected_index} is missing, which is the last one")

    def _scan(self, begin: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        for key, value in self._db.items(from_key=begin):
            if key >= end:
                return
            yield key, value

    def _corrupt(self, problem: str) -> CorruptLogError:
        return CorruptLogError(f"the metadata log in {self._path} is damaged: {problem}")


def _put_chunk(batch: StoreBatch, chunk: WriteSnapshotChunk) -> _Snapshot | None:
    """Adds a received part; returns the snapshot when it is whole with it."""
    if chunk.position == 0:
        batch.delete_range(snapshot_key(chunk.snapshot, 0), snapshot_key_end(chunk.snapshot))
    key = snapshot_key(chunk.snapshot, chunk.position)
    batch.put(key, seal(key, chunk.data))
    if not chunk.is_last:
        return None
    stored = _Snapshot(
        id=chunk.snapshot,
        voters=VoterSet.from_bytes(chunk.voters),
        size_bytes=chunk.position + len(chunk.data),
    )
    _put_name(batch, stored)
    return stored


def _encode_hard_state(state: HardState) -> bytes:
    voted_for = list(state.voted_for) if state.voted_for else None
    return encode_meta(_HARD_STATE_KEY, {"term": state.term, "voted_for": voted_for})


def _put_name(batch: StoreBatch, snapshot: _Snapshot) -> None:
    """Makes this the stored snapshot; the ones before it go."""
    batch.delete_range(SNAPSHOT, snapshot_key(snapshot.id, 0))
    fields = {
        "end_index": snapshot.id.end_index,
        "term": snapshot.id.term,
        "voters": snapshot.voters.to_bytes().decode(),
        "size_bytes": snapshot.size_bytes,
    }
    batch.put(_SNAPSHOT_KEY, encode_meta(_SNAPSHOT_KEY, fields))


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
