"""Kafka's checkpoint files: small text files that are always replaced as a whole.

    0                   version
    2                   number of rows
    orders 0 1200       one row per line, with columns separated by a space
    orders 1 1187

Each log directory has four files with rows of `topic partition offset`. In `recovery-point-offset-checkpoint`, all
records below the offset are on disk. `log-start-offset-checkpoint` has the log starts that DeleteRecords set.
`replication-offset-checkpoint` has the high watermarks. In `cleaner-offset-checkpoint`, all records below the offset
are compacted. Each log has `leader-epoch-checkpoint` with rows of `epoch startOffset`. Follows Kafka's
`CheckpointFile`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from klamm.errors import KlammError
from klamm.model import TopicPartition
from klamm_server.runtime.disk import Disk

RECOVERY_POINT_FILE = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_FILE = "log-start-offset-checkpoint"
HIGH_WATERMARK_FILE = "replication-offset-checkpoint"
CLEANER_OFFSET_FILE = "cleaner-offset-checkpoint"
_VERSION = 0


class CheckpointError(KlammError):
    """Raised if a checkpoint file does not follow its format. The text names the file and the line."""


def encode_checkpoint(rows: Sequence[Iterable[object]]) -> bytes:
    lines = [str(_VERSION), str(len(rows)), *(" ".join(map(str, row)) for row in rows)]
    return ("\n".join(lines) + "\n").encode()


def decode_checkpoint(path: str, data: bytes, columns: tuple[type, ...]) -> list[list[str | int]]:
    """Returns the rows of a checkpoint file. Each row has one value per column type. Raises CheckpointError."""
    lines = data.decode("utf-8", "replace").splitlines()
    if len(lines) < 2 or lines[0] != str(_VERSION) or not lines[1].isdigit():
        raise CheckpointError(f"checkpoint {path}: expected version {_VERSION} and a row count")
    if len(lines) - 2 != int(lines[1]):
        raise CheckpointError(
            f"checkpoint {path}: the file has {len(lines) - 2} rows, but its second line announces {lines[1]}"
        )
    return [_row(path, number, line, columns) for number, line in enumerate(lines[2:], start=3)]


def _row(path: str, number: int, line: str, columns: tuple[type, ...]) -> list[str | int]:
    parts = line.split()
    try:
        return [column(part) for column, part in zip(columns, parts, strict=True)]
    except ValueError:
        raise CheckpointError(
            f"checkpoint {path}, line {number}: {line!r} is not valid, expected {len(columns)} columns"
        ) from None


def write_offsets(disk: Disk, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Replaces a checkpoint of `topic partition offset` rows, durably. Raises OSError."""
    rows = [(topic, partition, offset) for (topic, partition), offset in sorted(offsets.items())]
    disk.write_atomically(path, encode_checkpoint(rows))


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, int]:
    """Returns the offsets of a checkpoint, or an empty dict without a file. Raises CheckpointError and OSError."""
    if not disk.exists(path):
        return {}
    rows = decode_checkpoint(path, disk.read_file(path), (str, int, int))
    return {TopicPartition(str(topic), int(partition)): int(offset) for topic, partition, offset in rows}
