"""Dumps the controllers' metadata log: its snapshot, its entries and the records in them.

RocksDB cannot open a database without touching its directory, so the dump reads a private copy. If a running controller
replaces files meanwhile, the dump copies them again.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from google.protobuf.message import DecodeError

from klamm.errors import KlammError
from klamm.wire.v1.metadata_pb2 import MetadataBatch, MetadataRecord
from klamm_cli.log_dump import line
from klamm_cli.log_dump.line import DumpLine, LineKind
from klamm_cli.log_dump.plain import plain
from klamm_controller.log.raft_store import RaftStore
from klamm_controller.log.snapshot import image_of_snapshot
from klamm_controller.raft.membership import VoterSet
from klamm_controller.raft.messages import EntryKind, LogEntry
from klamm_controller.raft.raft_log import START
from klamm_server.metadata.image_records import snapshot_records

_COPIES_MAX = 5
_HIDDEN: Final = "(hidden)"
_SECRETS: Final = {"user_scram_credential": ("salt", "stored_key", "server_key"), "cluster_secret": ("secret",)}
"""Fields that are not shown, by kind of record."""
_CURRENT = "CURRENT"
"""The file in which RocksDB names its manifest. A directory without this file is not a database."""
_UNREAD = ("LOCK", "LOG")
"""Prefixes of the names of files that hold no data of the database and change all the time."""


def is_metadata_log(directory: str) -> bool:
    return os.path.isfile(os.path.join(directory, _CURRENT))


def dump_metadata_log(path: str) -> Iterator[DumpLine]:
    """Yields the lines for the metadata log in the directory at `path`. Raises OSError."""
    with tempfile.TemporaryDirectory(prefix="klamm-log-dump-") as copy:
        try:
            _copy_unchanged(Path(path), Path(copy))
            store = RaftStore(Path(copy))
        except KlammError as error:
            yield line.damage(path, _reworded(path, copy, error))
            return
        with contextlib.closing(store):
            for dump in (_state_lines, _snapshot_lines, _entry_lines):
                try:
                    yield from dump(store)
                except KlammError as error:
                    yield line.damage(path, _reworded(path, copy, error))


def _reworded(path: str, copy: str, error: KlammError) -> str:
    return str(error).replace(copy, path)


def _copy_unchanged(source: Path, target: Path) -> None:
    """Copies all files as they were at one moment. Retries if a file was created or deleted during the copy. The end of
    the newest write-ahead log may be missing, as after a crash. Raises KlammError if every attempt fails."""
    for _ in range(_COPIES_MAX):
        before = _files(source)
        for name in os.listdir(target):
            (target / name).unlink()
        with contextlib.suppress(FileNotFoundError):
            for name in before:
                shutil.copyfile(source / name, target / name)
            if _files(source) == before:
                return
    raise KlammError(f"it changed while it was copied, {_COPIES_MAX} times: try again")


def _files(directory: Path) -> dict[str, int]:
    """Returns the names of the database's files, with the size of a manifest, whose end must not be missing. Other
    files have size 0."""
    found = {}
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_file() and not entry.name.startswith(_UNREAD):
                found[entry.name] = entry.stat().st_size if entry.name.startswith("MANIFEST") else 0
    return found


def _state_lines(store: RaftStore) -> Iterator[DumpLine]:
    state, voters = store.read_hard_state(), store.bootstrap_voters()
    voted_for = None if state.voted_for is None else f"{state.voted_for.node_id}:{state.voted_for.directory_id}"
    yield line.entry(directoryId=store.directory_id, term=state.term, votedFor=voted_for)
    yield line.entry(bootstrapVoters=None if voters is None else _voters(voters))


def _snapshot_lines(store: RaftStore) -> Iterator[DumpLine]:
    if store.snapshot_id == START:
        return
    yield line.entry(
        snapshotEndIndex=store.snapshot_id.end_index,
        snapshotTerm=store.snapshot_id.term,
        size=store.snapshot_size_bytes,
    )
    image = image_of_snapshot(store.read_snapshot(store.snapshot_id))
    yield from _record_lines(snapshot_records(image), None)


def _entry_lines(store: RaftStore) -> Iterator[DumpLine]:
    for entry in store.read_entries():
        yield DumpLine(LineKind.BATCH, {"index": entry.index, "term": entry.term, **_entry_fields(entry)})
        if entry.kind is EntryKind.DATA:
            batch = _batch(entry)
            yield from _record_lines(batch.records, batch.base_index)


def _entry_fields(entry: LogEntry) -> dict[str, object]:
    fields: dict[str, object] = {"kind": entry.kind.name, "size": len(entry.payload)}
    if entry.kind is EntryKind.VOTERS:
        fields["voters"] = _voters(VoterSet.from_bytes(entry.payload))
    return fields


def _batch(entry: LogEntry) -> MetadataBatch:
    try:
        return MetadataBatch.FromString(entry.payload)
    except DecodeError as error:
        raise KlammError(f"the entry at index {entry.index} does not parse: {error}") from error


def _record_lines(records: Iterable[MetadataRecord], base_index: int | None) -> Iterator[DumpLine]:
    """Yields a line for each record. `base_index` is the index of the first record, or None in a snapshot, where
    records have no index."""
    for number, record in enumerate(records):
        kind = record.WhichOneof("kind")
        index = {} if base_index is None else {"recordIndex": base_index + number}
        value = _shown(kind, plain(getattr(record, kind))) if kind else None
        yield DumpLine(LineKind.RECORD, {**index, "type": kind, "payload": value})


def _shown(kind: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Returns the fields of a record. Hides the values of secrets, and of fields that help to guess a password."""
    return {name: _HIDDEN if name in _SECRETS.get(kind, ()) else value for name, value in fields.items()}


def _voters(voters: VoterSet) -> object:
    return [plain(voter) for voter in voters]
