"""Stores a replica's log, hard state and snapshots in one database. Every call blocks.

After `write` or `name_snapshot` has returned, its data survives a crash of the machine. Each call is atomic. The key
`snapshot` names the newest complete snapshot. The parts of a snapshot that is being saved or received are in the store
too, but nothing names them until it is complete.

A crash loses only unacknowledged writes. Any other inconsistency is damage to acknowledged data, such as a wrong
checksum, a gap between entries, or a snapshot without its end. The store then refuses to open.

The store has the directory id (KIP-853), so that a node with an empty disk is a different replica. Kafka has the id in
`meta.properties`. Here, one write stores the format and the id, so a lost log always loses its id too. A store of
format 2 was made before directories had ids. Its id is empty, as in the voter sets of that version.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from klamm.errors import KlammError
from klamm_controller.log.data_dir import random_uuid
from klamm_controller.log.database import OpenDatabase, WriteBatch
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
from klamm_controller.log.rocks_database import RocksDatabase
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Snapshot:
    """The newest complete snapshot."""

    id: SnapshotId
    voters: VoterSet
    size_bytes: int


class RaftStore:
    """An open store. It is not thread-safe: only one caller may use it at a time, from any thread.

    Writes raise DiskFullError if there is no space. All other errors are the database's own."""

    def __init__(
        self, path: Path, open_database: OpenDatabase = RocksDatabase, rng: random.Random | None = None
    ) -> None:
        """Opens or creates the store, and deletes the parts of incomplete snapshots. `rng` makes the id of a new
        directory.

        Raises CorruptLogError or KlammError with a one-line reason."""
        self._path = path
        self._rng = rng or random.SystemRandom()
        self._db = open_database(path)
        try:
            self.directory_id = self._check_format()
            """The random id of the store's directory (KIP-853), or empty text for a store of format 2."""
            self._snapshot = self._read_snapshot_name()
            self._drop_unfinished_snapshots()
        except CorruptLogError as error:
            self._db.close()
            raise self._corrupt(str(error)) from error
        except BaseException:
            self._db.close()
            raise

    def bootstrap_voters(self) -> VoterSet | None:
        """Returns the voters with which the log begins, or None if the log has not begun. Raises CorruptLogError."""
        value = self._db.get(_BOOTSTRAP_KEY)
        if value is None:
            return None
        return VoterSet.from_bytes(decode_meta(_BOOTSTRAP_KEY, value)["voters"].encode())

    def begin(self, bootstrap_voters: VoterSet) -> None:
        """Stores the voters with which the log begins, unless it has begun already."""
        if self.bootstrap_voters() is None:
            self._put(_BOOTSTRAP_KEY, encode_meta(_BOOTSTRAP_KEY, {"voters": bootstrap_voters.to_bytes().decode()}))

    def load(self) -> StoredState:
        """Reads and checks the whole store. The log must have begun. Raises CorruptLogError."""
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
        """The id of the newest complete snapshot, or START if there is none."""
        return self._snapshot.id if self._snapshot else START

    @property
    def snapshot_size_bytes(self) -> int:
        """The size of the newest complete snapshot, or 0 if there is none."""
        return self._snapshot.size_bytes if self._snapshot else 0

    def write(self, persists: Sequence[Persist]) -> None:
        """Makes the writes durable in order, either all or none."""
        batch = WriteBatch()
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
        self._db.write(batch)
        self._snapshot = snapshot

    def write_snapshot_part(self, snapshot: SnapshotId, position: int, data: bytes) -> None:
        """Writes a part of a snapshot that this replica makes. The part is durable only after `name_snapshot`."""
        batch = WriteBatch()
        if position == 0:
            batch.delete_range(snapshot_key(snapshot, 0), snapshot_key_end(snapshot))
        key = snapshot_key(snapshot, position)
        batch.put(key, seal(key, data))
        self._db.write(batch, sync=False)

    def name_snapshot(self, snapshot: SnapshotId, voters: VoterSet, size_bytes: int) -> None:
        """Makes a snapshot durable after all its parts were written. It replaces the previous snapshot.

        Does nothing if the store already has a snapshot that ends at the same index or later, which a leader sent
        meanwhile."""
        if self._snapshot is not None and self._snapshot.id.end_index >= snapshot.end_index:
            return
        stored = _Snapshot(id=snapshot, voters=voters, size_bytes=size_bytes)
        batch = WriteBatch()
        _put_name(batch, stored)
        self._db.write(batch)
        self._snapshot = stored

    def read_snapshot(self, snapshot: SnapshotId) -> Iterator[bytes]:
        """Yields the bytes of a complete snapshot, in parts. Raises CorruptLogError if a part is damaged or missing."""
        position = 0
        for key, value in self._scan(snapshot_key(snapshot, 0), snapshot_key_end(snapshot)):
            data = unseal(key, value)
            if snapshot_position(key) != position:
                raise CorruptLogError(f"position {position} of the snapshot of index {snapshot.end_index} is missing")
            position += len(data)
            yield data

    def read_chunk(self, snapshot: SnapshotId, position: int, max_bytes: int) -> tuple[bytes, bool] | None:
        """Returns up to `max_bytes` of the snapshot from `position` on, and whether they are its last bytes. Returns
        None if another snapshot has replaced this one.

        Raises CorruptLogError."""
        stored = self._snapshot
        if stored is None or stored.id != snapshot or not 0 <= position <= stored.size_bytes:
            return None
        key, value = next(iter(self._db.items(snapshot_key(snapshot, position), backwards=True)))
        skipped = position - snapshot_position(key)
        data = unseal(key, value)[skipped : skipped + max_bytes]
        return data, position + len(data) == stored.size_bytes

    def close(self) -> None:
        """Closes the store. Data are durable before this, so a failure to close loses nothing."""
        self._db.close()

    def _put(self, key: bytes, value: bytes) -> None:
        batch = WriteBatch()
        batch.put(key, value)
        self._db.write(batch)

    def _check_format(self) -> str:
        """Checks the format of the store, or formats a new store. Returns the directory id."""
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
        directory_id = random_uuid(self._rng)
        batch = WriteBatch()
        batch.put(_DIRECTORY_ID_KEY, encode_meta(_DIRECTORY_ID_KEY, {"directory_id": directory_id}))
        batch.put(_FORMAT_KEY, FORMAT_VERSION)
        self._db.write(batch)
        return directory_id

    def read_hard_state(self) -> HardState:
        """Returns the stored term and vote, or term 0 without a vote. Raises CorruptLogError."""
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
        batch = WriteBatch()
        if self._snapshot is None:
            batch.delete_range(SNAPSHOT, SNAPSHOT_END)
        else:
            batch.delete_range(SNAPSHOT, snapshot_key(self._snapshot.id, 0))
            batch.delete_range(snapshot_key_end(self._snapshot.id), SNAPSHOT_END)
        self._db.write(batch)

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
        """Yields all entries. They begin at or before the snapshot's end, reach it, and have no gap. Raises
        CorruptLogError at the first entry that breaks this."""
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
        for key, value in self._db.items(begin):
            if key >= end:
                return
            yield key, value

    def _corrupt(self, problem: str) -> CorruptLogError:
        return CorruptLogError(f"the metadata log in {self._path} is damaged: {problem}")


def _put_chunk(batch: WriteBatch, chunk: WriteSnapshotChunk) -> _Snapshot | None:
    """Adds a received part of a snapshot to `batch`. Returns the snapshot once its last part is added, or else None."""
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


def _put_name(batch: WriteBatch, snapshot: _Snapshot) -> None:
    """Adds to `batch` the name of the newest snapshot, and the deletion of all earlier snapshots."""
    batch.delete_range(SNAPSHOT, snapshot_key(snapshot.id, 0))
    fields = {
        "end_index": snapshot.id.end_index,
        "term": snapshot.id.term,
        "voters": snapshot.voters.to_bytes().decode(),
        "size_bytes": snapshot.size_bytes,
    }
    batch.put(_SNAPSHOT_KEY, encode_meta(_SNAPSHOT_KEY, fields))
