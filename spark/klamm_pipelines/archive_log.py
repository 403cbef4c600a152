"""The contents of an archive as a log of changes: its files, and the next offset of each partition. Pure.

A reader uses one version of the log, so it sees a change of many files as one step. A change names the offsets from
which it continues. So a batch that runs again adds nothing twice, whatever its checkpoint is. For the same reason, two
archivers cannot overtake each other.

A version is one JSON file, `_log/00000000000000000012.json`. Every CHECKPOINT_INTERVAL versions, a second file has the
whole contents at that version, `00000000000000000020.checkpoint.json`. A reader needs only the newest of these and the
versions after it.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from klamm.errors import IllegalStateError

CHECKPOINT_INTERVAL: Final = 20


class ArchiveConflictError(IllegalStateError):
    """Raised if another archiver or compactor has changed the archive first."""


class SourcePartition(NamedTuple):
    """A partition of a topic with one id: a topic that is deleted and created again begins at offset 0."""

    topic: str
    topic_id: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedFile:
    """A Parquet file of one topic and hour."""

    path: str
    """The path relative to the archive's root."""
    topic: str
    topic_id: str
    date: str
    """The date of the records' timestamps, in UTC, as are the hours."""
    hour: str
    rows: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Advance:
    """The progress of one partition in a change."""

    source: SourcePartition
    start_offset: int
    """The offset up to which the partition must be archived before the change."""
    end_offset: int
    """The offset up to which the partition is archived after the change (exclusive)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveChange:
    """The changes of one version against the previous one."""

    time_ms: int
    add: tuple[ArchivedFile, ...] = ()
    remove: tuple[str, ...] = ()
    """The paths of files that leave the archive. Readers of older versions may still read these files."""
    forget: tuple[str, ...] = ()
    """The removed paths whose files have been deleted."""
    advance: tuple[Advance, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveContents:
    """The archive at one version."""

    version: int = 0
    """The number of the version. Version 0 is the empty archive."""
    files: Mapping[str, ArchivedFile] = field(default_factory=dict)
    """The archive's files by path."""
    ends: Mapping[SourcePartition, int] = field(default_factory=dict)
    """The first offset of each partition that is not archived."""
    removed: Mapping[str, int] = field(default_factory=dict)
    """The time when each file left the archive, by path, in milliseconds since the epoch. These files still exist."""

    def after(self, change: ArchiveChange) -> ArchiveContents:
        """Returns the contents after the change. Raises ArchiveConflictError if the change was made for other
        contents."""
        for advance in change.advance:
            if self.ends.get(advance.source, 0) != advance.start_offset:
                raise ArchiveConflictError(
                    f"{advance.source.topic}-{advance.source.partition} is archived up to offset"
                    f" {self.ends.get(advance.source, 0)}, not {advance.start_offset}:"
                    " another archiver writes to the archive"
                )
        for path in change.remove:
            if path not in self.files:
                raise ArchiveConflictError(
                    f"{path} is no longer in the archive, because another compaction replaced it"
                )
        files = {path: file for path, file in self.files.items() if path not in set(change.remove)}
        forgotten = set(change.forget)
        removed = {path: when for path, when in self.removed.items() if path not in forgotten}
        return ArchiveContents(
            version=self.version + 1,
            files=files | {file.path: file for file in change.add},
            ends={**self.ends, **{advance.source: advance.end_offset for advance in change.advance}},
            removed=removed | dict.fromkeys(change.remove, change.time_ms),
        )


def encode_change(change: ArchiveChange) -> str:
    return json.dumps(dataclasses.asdict(change))


def decode_change(text: str) -> ArchiveChange:
    stored = json.loads(text)
    return ArchiveChange(
        time_ms=stored["time_ms"],
        add=tuple(ArchivedFile(**file) for file in stored["add"]),
        remove=tuple(stored["remove"]),
        forget=tuple(stored["forget"]),
        advance=tuple(
            Advance(**{**advance, "source": SourcePartition(*advance["source"])}) for advance in stored["advance"]
        ),
    )


def encode_contents(contents: ArchiveContents) -> str:
    stored: dict[str, Any] = {
        "version": contents.version,
        "files": [dataclasses.asdict(file) for file in contents.files.values()],
        "ends": [[*source, end] for source, end in contents.ends.items()],
        "removed": dict(contents.removed),
    }
    return json.dumps(stored)


def decode_contents(text: str) -> ArchiveContents:
    stored = json.loads(text)
    files = [ArchivedFile(**file) for file in stored["files"]]
    return ArchiveContents(
        version=stored["version"],
        files={file.path: file for file in files},
        ends={SourcePartition(*source): end for *source, end in stored["ends"]},
        removed=stored["removed"],
    )


class Compaction(NamedTuple):
    """Small files of one topic and hour that become larger ones."""

    files: tuple[ArchivedFile, ...]
    file_count: int
    """The number of files after the compaction."""


def plan_compactions(files: Iterable[ArchivedFile], *, target_bytes: int, files_min: int) -> list[Compaction]:
    """Returns a compaction for each hour with at least `files_min` files smaller than `target_bytes`. It has all these
    files."""
    small: dict[tuple[str, str, str, str], list[ArchivedFile]] = {}
    for file in sorted(files, key=lambda file: file.path):
        if file.size_bytes < target_bytes:
            small.setdefault((file.topic, file.topic_id, file.date, file.hour), []).append(file)
    plans = []
    for of_hour in small.values():
        file_count = max(1, sum(file.size_bytes for file in of_hour) // target_bytes)
        if len(of_hour) >= max(files_min, file_count + 1):
            plans.append(Compaction(tuple(of_hour), file_count))
    return plans
