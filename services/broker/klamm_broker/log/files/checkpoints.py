"""Kafka's checkpoint files: small texts that are replaced as a whole, never edited.

    0                   version
    2                   number of rows
    orders 0 1200       one row a line, columns parted by a space
    orders 1 1187

Per log dir there are four with rows of `topic partition offset`: `recovery-point-offset-checkpoint` (all
below is on disk), `log-start-offset-checkpoint` (where DeleteRecords moved the start to),
`replication-offset-checkpoint` (high watermarks), `cleaner-offset-checkpoint` (all below is compacted); per log,
`leader-epoch-checkpoint` with rows of `epoch startOffset`. Follows Kafka's `CheckpointFile`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from klamm.errors import KlammError
from klamm.model import TopicPartition
from klamm_broker.log.files.disk import Disk

RECOVERY_POINT_FILE = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_FILE = "log-start-offset-checkpoint"
HIGH_WATERMARK_FILE = "replication-offset-checkpoint"
CLEANER_OFFSET_FILE = "cleaner-offset-checkpoint"
_VERSION = 0


class CheckpointError(KlammError):
    """A checkpoint file does not follow its format; the text names the file and the line."""


def encode_checkpoint(rows: Sequence[Iterable[object]]) -> bytes:
    lines = [str(_VERSION), str(len(rows)), *(" ".join(map(str, row)) for row in rows)]
    return ("\n".join(lines) + "\n").encode()


def decode_checkpoint(path: str, data: bytes, columns: tuple[type, ...]) -> list[list[str | int]]:
    """The rows of a checkpoint file, each with one value per column type. Raises CheckpointError."""
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
    """The offsets of a checkpoint, none if there is no file. Raises CheckpointError and OSError."""
    if not disk.exists(path):
        return {}
    rows = decode_checkpoint(path, disk.read_file(path), (str, int, int))
    return {TopicPartition(str(topic), int(partition)): int(offset) for topic, partition, offset in rows}
