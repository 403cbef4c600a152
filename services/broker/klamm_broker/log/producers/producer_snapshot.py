"""`<offset, 20 digits>.snapshot`: the state of producers below `offset`, so that this part of the log need not be read.

Kafka's format (`ProducerSnapshot`, version 1); all integers are big-endian:

    at  bytes  field                          in each entry
     0      2  version = 1                     0  8  producer_id
     2      4  CRC-32C of all that follows     8  2  epoch
     6      4  number of entries              10  4  last_sequence
    10     46  each entry                     14  8  last_offset
                                              22  4  offset_delta: number of records less one
                                              26  8  timestamp_ms
                                              34  4  coordinator_epoch: of the last marker, or -1
                                              38  8  current_txn_first_offset: of the open transaction, or -1

Kafka writes the last batch of a producer. Klamm writes an entry for each run, the latest last, which Kafka's reader
would keep. A producer without a run has an entry with last_sequence and last_offset = -1.

There is a snapshot for the beginning of each segment, and one for the end of the log after a clean shutdown. Files are
written without fsync. If a file is missing or damaged, more of the log must be read. Before a log is truncated,
snapshots beyond its new end are removed.
"""

from __future__ import annotations

import logging
import os
import struct
from collections.abc import Collection, Iterable

from klamm.checksum import crc32c
from klamm.errors import KlammError
from klamm.records.header import NO_SEQUENCE, SEQUENCE_MAX
from klamm_broker.log.files.storage_failure import is_disk_full
from klamm_broker.log.producers.producer_state import NO_OFFSET, ProducerRow, ProducerStates, Run
from klamm_server.runtime.disk import Disk

SNAPSHOT_SUFFIX = ".snapshot"
VERSION = 1
_HEADER = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")
_NAME_LENGTH = 20 + len(SNAPSHOT_SUFFIX)

logger = logging.getLogger(__name__)


class CorruptSnapshotError(KlammError):
    """Raised if a snapshot does not follow its format. The text names the error."""


def encode_snapshot(rows: Iterable[ProducerRow]) -> bytes:
    entries = [
        _ENTRY.pack(
            row.producer_id,
            row.epoch,
            *_run_fields(row.run),
            row.last_ms,
            row.coordinator_epoch,
            row.txn_first_offset,
        )
        for row in rows
    ]
    body = _COUNT.pack(len(entries)) + b"".join(entries)
    return _HEADER.pack(VERSION, crc32c(body)) + body


def _run_fields(run: Run | None) -> tuple[int, int, int]:
    """Returns the last sequence, the last offset and the offset delta."""
    return (
        (NO_SEQUENCE, NO_OFFSET, 0) if run is None else (run.last_sequence, run.next_offset - 1, run.record_count - 1)
    )


def decode_snapshot(data: bytes) -> list[ProducerRow]:
    """Returns the rows of a snapshot. Raises CorruptSnapshotError."""
    if len(data) < _HEADER.size + _COUNT.size:
        raise CorruptSnapshotError(f"the file has {len(data)} bytes; expected {_HEADER.size + _COUNT.size} or more")
    version, crc = _HEADER.unpack_from(data)
    if version != VERSION:
        raise CorruptSnapshotError(f"the file has version {version}; expected {VERSION}")
    body = memoryview(data)[_HEADER.size :]
    if crc32c(body) != crc:
        raise CorruptSnapshotError(f"the file states CRC-32C {crc:#010x}, but its bytes have {crc32c(body):#010x}")
    (count,) = _COUNT.unpack_from(body)
    if len(body) != _COUNT.size + count * _ENTRY.size:
        raise CorruptSnapshotError(
            f"the file has {len(data)} bytes, but its {count} entries take {count * _ENTRY.size}"
        )
    return [_row(*entry) for entry in _ENTRY.iter_unpack(body[_COUNT.size :])]


def _row(
    producer_id: int,
    epoch: int,
    last_sequence: int,
    last_offset: int,
    offset_delta: int,
    timestamp_ms: int,
    coordinator_epoch: int,
    txn_first_offset: int,
) -> ProducerRow:
    run = None
    if last_offset != NO_OFFSET:
        if not 0 <= offset_delta <= last_offset:
            raise CorruptSnapshotError(
                f"producer {producer_id} has {offset_delta + 1} records up to offset {last_offset}"
            )
        base_sequence = (last_sequence - offset_delta) & SEQUENCE_MAX
        run = Run(base_sequence, last_offset - offset_delta, offset_delta + 1, timestamp_ms)
    return ProducerRow(producer_id, epoch, run, timestamp_ms, coordinator_epoch, txn_first_offset)


class ProducerSnapshots:
    """The snapshot files of one log. All calls raise OSError."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self.directory = directory
        self._offsets = {
            int(name[:20])
            for name in disk.list_files(directory)
            if name.endswith(SNAPSHOT_SUFFIX) and len(name) == _NAME_LENGTH and name[:20].isdigit()
        }

    @property
    def offsets(self) -> Collection[int]:
        return self._offsets

    def path(self, offset: int) -> str:
        return f"{self.directory}/{offset:020d}{SNAPSHOT_SUFFIX}"

    def write(self, offset: int, states: ProducerStates) -> None:
        """Stores the state of all records below `offset`. If the disk is full, stores nothing."""
        try:
            fd = self._disk.open(self.path(offset), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            self._offsets.add(offset)
            try:
                self._disk.pwrite_all(fd, encode_snapshot(states.rows()), 0)
            finally:
                self._disk.close(fd)
        except OSError as error:
            if not is_disk_full(error):
                raise
            logger.warning("could not write a producer snapshot, snapshot=%s reason=%s", self.path(offset), error)

    def read_latest(self, *, up_to: int) -> tuple[int, list[ProducerRow]] | None:
        """Returns the offset and rows of the latest snapshot at or below `up_to`, or None. Removes damaged
        snapshots."""
        while offsets := [offset for offset in self._offsets if offset <= up_to]:
            offset = max(offsets)
            try:
                return offset, decode_snapshot(self._disk.read_file(self.path(offset)))
            except (CorruptSnapshotError, FileNotFoundError) as error:
                logger.warning(
                    "ignored a producer snapshot and removed the file, snapshot=%s reason=%s", self.path(offset), error
                )
                self._remove([offset])
        return None

    def truncate_to(self, end_offset: int) -> None:
        """Removes snapshots of records at or after `end_offset`."""
        self._remove([offset for offset in self._offsets if offset > end_offset])

    def retain(self, base_offsets: Collection[int]) -> None:
        """Removes snapshots that are at no segment's base offset, except those after the latest segment's base
        offset."""
        latest_base = max(base_offsets)
        keep = set(base_offsets)
        self._remove([offset for offset in self._offsets if offset < latest_base and offset not in keep])

    def _remove(self, offsets: Collection[int]) -> None:
        self._disk.remove(self.path(offset) for offset in offsets)
        self._offsets.difference_update(offsets)
