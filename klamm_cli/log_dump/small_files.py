"""Dumps checkpoints, producer snapshots and properties files, which are all read as a whole."""

from __future__ import annotations

from collections.abc import Iterator

from klamm_broker.log.files.checkpoints import CheckpointError, decode_checkpoint
from klamm_broker.log.producers.producer_snapshot import CorruptSnapshotError, decode_snapshot
from klamm_cli.log_dump import line
from klamm_cli.log_dump.line import DumpLine
from klamm_server.runtime.disk import Disk


def dump_offsets_checkpoint(disk: Disk, path: str) -> Iterator[DumpLine]:
    """Yields a line with topic, partition and offset for each row of a checkpoint. Raises OSError."""
    yield from _checkpoint(disk, path, {"topic": str, "partition": int, "offset": int})


def dump_epochs_checkpoint(disk: Disk, path: str) -> Iterator[DumpLine]:
    """Yields a line with epoch and start offset for each row of a `leader-epoch-checkpoint`. Raises OSError."""
    yield from _checkpoint(disk, path, {"epoch": int, "startOffset": int})


def _checkpoint(disk: Disk, path: str, columns: dict[str, type]) -> Iterator[DumpLine]:
    try:
        rows = decode_checkpoint(path, disk.read_file(path), tuple(columns.values()))
    except CheckpointError as error:
        yield line.damage(path, str(error))
        return
    yield from (line.entry(**dict(zip(columns, row, strict=True))) for row in rows)


def dump_snapshot(disk: Disk, path: str) -> Iterator[DumpLine]:
    """Yields a line for each run of each producer in a snapshot. Raises OSError."""
    try:
        rows = decode_snapshot(disk.read_file(path))
    except CorruptSnapshotError as error:
        yield line.damage(path, str(error))
        return
    for row in rows:
        run = row.run
        yield line.entry(
            producerId=row.producer_id,
            producerEpoch=row.epoch,
            coordinatorEpoch=row.coordinator_epoch,
            currentTxnFirstOffset=row.txn_first_offset,
            firstSequence=-1 if run is None else run.base_sequence,
            lastSequence=-1 if run is None else run.last_sequence,
            firstOffset=-1 if run is None else run.base_offset,
            lastOffset=-1 if run is None else run.next_offset - 1,
            timestamp=row.last_ms,
        )


def dump_properties(disk: Disk, path: str) -> Iterator[DumpLine]:
    """Yields a line for each line of the file that is not blank. Raises OSError."""
    for text in disk.read_file(path).decode("utf-8", "backslashreplace").splitlines():
        if text.strip():
            yield line.entry(property=text)
