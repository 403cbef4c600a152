"""Finds the files in a directory that can be dumped, by their names, and sorts them into the order of the dump."""

from __future__ import annotations

import enum
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

from klamm_broker.log.files.checkpoints import (
    CLEANER_OFFSET_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_OFFSET_FILE,
    RECOVERY_POINT_FILE,
)
from klamm_broker.log.files.clean_shutdown import CLEAN_SHUTDOWN_FILE
from klamm_broker.log.files.leader_epochs import LEADER_EPOCH_FILE
from klamm_broker.log.files.meta_properties import META_PROPERTIES_FILE
from klamm_broker.log.files.partition_metadata import PARTITION_METADATA_FILE
from klamm_broker.log.producers.producer_snapshot import SNAPSHOT_SUFFIX
from klamm_broker.log.segment.segment_files import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX
from klamm_cli.log_dump.metadata_log import is_metadata_log


class FileKind(enum.Enum):
    """The kind of a file, or of a directory that is read as one file. A dump shows a segment's files in this order."""

    METADATA_LOG = enum.auto()
    PROPERTIES = enum.auto()
    EPOCHS_CHECKPOINT = enum.auto()
    OFFSETS_CHECKPOINT = enum.auto()
    LOG = enum.auto()
    OFFSET_INDEX = enum.auto()
    TIME_INDEX = enum.auto()
    TRANSACTION_INDEX = enum.auto()
    PRODUCER_SNAPSHOT = enum.auto()


_BY_NAME = {
    META_PROPERTIES_FILE: FileKind.PROPERTIES,
    PARTITION_METADATA_FILE: FileKind.PROPERTIES,
    CLEAN_SHUTDOWN_FILE: FileKind.PROPERTIES,
    "cluster.properties": FileKind.PROPERTIES,
    LEADER_EPOCH_FILE: FileKind.EPOCHS_CHECKPOINT,
    RECOVERY_POINT_FILE: FileKind.OFFSETS_CHECKPOINT,
    LOG_START_OFFSET_FILE: FileKind.OFFSETS_CHECKPOINT,
    HIGH_WATERMARK_FILE: FileKind.OFFSETS_CHECKPOINT,
    CLEANER_OFFSET_FILE: FileKind.OFFSETS_CHECKPOINT,
}
_BY_SUFFIX = {
    LOG_SUFFIX: FileKind.LOG,
    INDEX_SUFFIX: FileKind.OFFSET_INDEX,
    TIME_INDEX_SUFFIX: FileKind.TIME_INDEX,
    TRANSACTION_INDEX_SUFFIX: FileKind.TRANSACTION_INDEX,
    SNAPSHOT_SUFFIX: FileKind.PRODUCER_SNAPSHOT,
}
_OF_OFFSET = re.compile(r"(?P<offset>\d{20})(?P<suffix>\.[a-z]+)(?P<state>\.(deleted|cleaned|swap))?\Z", re.ASCII)
EXPECTED = (
    "a segment's .log, .index, .timeindex, .txnindex or .snapshot, a checkpoint, a properties file, a metadata.db,"
    " or a directory with such files"
)


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file, and the facts in its name."""

    path: str
    kind: FileKind
    base_offset: int = 0
    """The offset in the name of a segment's file or of a snapshot; 0 for other files."""
    state: str = ""
    """The suffix `.deleted`, `.cleaned` or `.swap` of a file that is not, or not yet, part of the log; otherwise
    empty."""

    @property
    def log_path(self) -> str:
        """The path of the log of the segment that the file belongs to."""
        return os.path.join(os.path.dirname(self.path), f"{self.base_offset:020d}{LOG_SUFFIX}{self.state}")


def data_file(path: str) -> DataFile | None:
    """Returns the file at `path` with the facts in its name, or None if it is not a file of a data directory."""
    if os.path.isdir(path):
        return DataFile(path, FileKind.METADATA_LOG) if is_metadata_log(path) else None
    name = os.path.basename(path)
    if name in _BY_NAME:
        return DataFile(path, _BY_NAME[name])
    found = _OF_OFFSET.match(name)
    if found is None or found["suffix"] not in _BY_SUFFIX:
        return None
    return DataFile(path, _BY_SUFFIX[found["suffix"]], int(found["offset"]), found["state"] or "")


def data_files(path: str) -> Iterator[DataFile]:
    """Yields the file at `path`, or all files in the directory at `path` and its subdirectories. Raises OSError."""
    file = data_file(path)
    if file is not None:
        yield file
    elif os.path.isdir(path):
        entries = sorted(os.scandir(path), key=lambda entry: entry.name)
        found = [file for entry in entries if entry.is_file() and (file := data_file(entry.path))]
        yield from sorted(found, key=lambda file: (file.base_offset, file.kind.value, file.path))
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from data_files(entry.path)


def is_newest_segment(file: DataFile) -> bool:
    """Returns whether a broker may still append to the log, because no newer segment is in its directory."""
    if file.state:
        return False
    names = os.listdir(os.path.dirname(file.path) or ".")
    others = (found for name in names if (found := _OF_OFFSET.match(name)) and not found["state"])
    return all(int(other["offset"]) <= file.base_offset for other in others if other["suffix"] == LOG_SUFFIX)
