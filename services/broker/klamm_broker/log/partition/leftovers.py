"""The files that a crash can leave in a partition's directory besides live segments, and their treatment on load.

| suffix | what it was | on load |
|---|---|---|
| `.deleted` | a segment waiting for `file.delete.delay.ms` | removed |
| `.cleaned` | output of a compaction that had not finished | removed |
| `.swap` | finished output of a compaction, about to replace the segments it covers | put in their place |
| `.tmp` | a small file that was being replaced | removed |
| `.index`, `.timeindex`, `.txnindex` without `.log` | the index of a log that another program removed | removed |

Follows Kafka's `LogLoader`, including KAFKA-6264: a `.swap` at or above the lowest `.cleaned` belongs to an unfinished
operation.
"""

from __future__ import annotations

import os
import re

from klamm.records.errors import CorruptBatchError
from klamm_broker.log.segment.batch_scan import scan_headers
from klamm_broker.log.segment.segment_files import LOG_SUFFIX, SEGMENT_SUFFIXES
from klamm_server.runtime.disk import Disk

_SEGMENT_FILE = re.compile(r"(\d{20})(\.log|\.index|\.timeindex|\.txnindex|\.snapshot)(\.\w+)?\Z")
_REMOVED_SUFFIXES = (".deleted", ".cleaned", ".tmp")


def base_offset_of(name: str) -> int | None:
    """Returns the base offset in a segment file's name, whatever suffix follows it, or None for another file."""
    found = _SEGMENT_FILE.match(name)
    return int(found[1]) if found else None


def sweep_leftovers(disk: Disk, directory: str) -> list[int]:
    """Removes or completes the leftovers of a crash. Returns the base offsets of the live segments, in order. Raises
    OSError."""
    names = disk.list_files(directory)
    cleaned = [base_offset_of(name) for name in names if name.endswith(".cleaned")]
    lowest_cleaned = min((offset for offset in cleaned if offset is not None), default=None)
    for name in names:
        offset = base_offset_of(name)
        unfinished_swap = (
            name.endswith(".swap") and offset is not None and lowest_cleaned is not None and offset >= lowest_cleaned
        )
        if name.endswith(_REMOVED_SUFFIXES) or unfinished_swap:
            disk.remove([f"{directory}/{name}"])
    _complete_swaps(disk, directory)
    return _live_segments(disk, directory)


def _complete_swaps(disk: Disk, directory: str) -> None:
    swaps = [name for name in disk.list_files(directory) if name.endswith(".swap")]
    logs = [name for name in swaps if name.endswith(f"{LOG_SUFFIX}.swap")]
    if logs:
        start = min(int(name[:20]) for name in logs)
        end = max(_next_offset(disk, f"{directory}/{name}", int(name[:20])) for name in logs)
        for name in disk.list_files(directory):
            offset = base_offset_of(name)
            if not name.endswith(".swap") and offset is not None and start <= offset < end:
                disk.remove([f"{directory}/{name}"])
    for name in swaps:
        path = f"{directory}/{name}"
        disk.replace(path, path.removesuffix(".swap"))


def _next_offset(disk: Disk, path: str, base_offset: int) -> int:
    """Returns the offset after the last record of a log file."""
    fd = disk.open(path, os.O_RDONLY)
    try:
        for _, header in scan_headers(disk, fd, 0, disk.size(path)):
            base_offset = header.next_offset
    except CorruptBatchError:
        return base_offset
    finally:
        disk.close(fd)
    return base_offset


def _live_segments(disk: Disk, directory: str) -> list[int]:
    names = set(disk.list_files(directory))
    for name in sorted(names):
        is_index = name.endswith(SEGMENT_SUFFIXES[1:]) and base_offset_of(name) is not None
        if is_index and f"{name[:20]}{LOG_SUFFIX}" not in names:
            disk.remove([f"{directory}/{name}"])
    logs = (name for name in names if name.endswith(LOG_SUFFIX))
    return sorted(offset for name in logs if (offset := base_offset_of(name)) is not None)
