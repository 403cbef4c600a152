"""The start offset of each leader epoch of a partition (KIP-101, KIP-279). Truncation relies on it.

`LeaderEpochCache` is pure. Its entries grow strictly in epoch and in start offset. An epoch without records loses its
entry when a later epoch begins at the same offset. Follows Kafka's `LeaderEpochFileCache`.

`LeaderEpochFile` stores the cache in `leader-epoch-checkpoint`. Kafka writes and syncs the file at every new epoch. In
Klamm, it is written when the log is flushed, truncated or closed. Epochs that the file lacks are in the headers of
batches at or above the recovery point, which are read after a crash anyway. Before the recovery point moves past a
batch, the file with its epoch is on disk (`log_flush.py`).
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from typing import NamedTuple

from klamm.model import NO_LEADER_EPOCH
from klamm_broker.log.files.checkpoints import CheckpointError, decode_checkpoint, encode_checkpoint
from klamm_server.runtime.disk import Disk

LEADER_EPOCH_FILE = "leader-epoch-checkpoint"
UNDEFINED_OFFSET = -1


class EpochEntry(NamedTuple):
    """A leader epoch and the offset of its first record."""

    epoch: int
    start_offset: int


class LeaderEpochCache:
    """The epochs of one log. `version` grows with every change, so that a writer detects unwritten changes."""

    __slots__ = ("_entries", "latest_epoch", "version")

    def __init__(self, entries: tuple[EpochEntry, ...] = ()) -> None:
        self._entries: list[EpochEntry] = []
        self.latest_epoch = NO_LEADER_EPOCH
        """The largest epoch with an entry, or -1. It is a plain attribute because every append reads it."""
        self.version = 0
        for entry in entries:
            self.assign(*entry)

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        return tuple(self._entries)

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Records that `epoch` begins at `start_offset`, and drops entries that contradict it.

        Returns False if the latest entry already has this epoch, with the same or an earlier start offset."""
        assert epoch >= 0, epoch
        assert start_offset >= 0, start_offset
        entries = self._entries
        if entries and entries[-1].epoch == epoch and start_offset >= entries[-1].start_offset:
            return False
        while entries and (entries[-1].epoch >= epoch or entries[-1].start_offset >= start_offset):
            entries.pop()
        entries.append(EpochEntry(epoch, start_offset))
        self._changed()
        return True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Returns the largest known epoch <= `epoch` and its exclusive end offset, as in the answer of
        OffsetsForLeaderEpoch.

        The current epoch ends at `log_end_offset`. An epoch before all known epochs ends where the first known epoch
        begins. Returns (-1, -1) for an epoch that is undefined, or newer than all known epochs."""
        if epoch <= NO_LEADER_EPOCH or epoch > self.latest_epoch:
            return NO_LEADER_EPOCH, UNDEFINED_OFFSET
        if epoch == self.latest_epoch:
            return epoch, log_end_offset
        higher = bisect_right(self._entries, epoch, key=lambda entry: entry.epoch)
        end_offset = self._entries[higher].start_offset
        return (self._entries[higher - 1].epoch if higher else epoch), end_offset

    def epoch_for_offset(self, offset: int) -> int:
        """Returns the epoch in which the record at `offset` was written, or -1 if it is before all entries."""
        after = bisect_right(self._entries, offset, key=lambda entry: entry.start_offset)
        return self._entries[after - 1].epoch if after else NO_LEADER_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        """Drops the epochs that began at or after `end_offset`, the new end of the log."""
        count = len(self._entries)
        while self._entries and self._entries[-1].start_offset >= end_offset:
            self._entries.pop()
        if len(self._entries) != count:
            self._changed()

    def truncate_from_start(self, start_offset: int) -> None:
        """Drops the epochs before `start_offset`, the new start of the log. The epoch at this offset begins there
        now."""
        below = bisect_right(self._entries, start_offset, key=lambda entry: entry.start_offset)
        if below and (below > 1 or self._entries[0].start_offset != start_offset):
            self._entries[:below] = [EpochEntry(self._entries[below - 1].epoch, start_offset)]
            self._changed()

    def clear(self) -> None:
        self._entries.clear()
        self._changed()

    def _changed(self) -> None:
        self.latest_epoch = self._entries[-1].epoch if self._entries else NO_LEADER_EPOCH
        self.version += 1

    def check_invariants(self) -> None:
        """Asserts that entries grow strictly in both fields."""
        for before, after in zip(self._entries, self._entries[1:], strict=False):
            assert before.epoch < after.epoch, (before, after)
            assert before.start_offset < after.start_offset, (before, after)
        assert self.latest_epoch == (self._entries[-1].epoch if self._entries else NO_LEADER_EPOCH)


class LeaderEpochFile:
    """The file `leader-epoch-checkpoint` of one log, with lines of `epoch startOffset`."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self.path = f"{directory}/{LEADER_EPOCH_FILE}"
        self._written_version = -1
        # A truncation writes on the event loop. At the same time, a flush that was planned before may write the older
        # entries on a disk thread. The lock and the version keep the older content from being written last.
        self._lock = threading.Lock()

    def read(self) -> LeaderEpochCache:
        """Returns the stored cache, empty if there is no file. Raises CheckpointError if the file is damaged."""
        if not self._disk.exists(self.path):
            cache = LeaderEpochCache()
            self._written_version = cache.version  # a missing file has the same meaning as a file without entries
            return cache
        rows = decode_checkpoint(self.path, self._disk.read_file(self.path), (int, int))
        entries = tuple(EpochEntry(int(epoch), int(offset)) for epoch, offset in rows)
        if any(epoch < 0 or offset < 0 for epoch, offset in entries):
            raise CheckpointError(f"checkpoint {self.path}: an epoch or offset is negative; expected 0 or more")
        cache = LeaderEpochCache(entries)
        self._written_version = cache.version
        return cache

    def relocate(self, directory: str) -> None:
        """Sets the new path, after the log's directory was renamed."""
        with self._lock:
            self.path = f"{directory}/{LEADER_EPOCH_FILE}"

    def is_behind(self, cache: LeaderEpochCache) -> bool:
        return cache.version > self._written_version

    def write(self, version: int, entries: tuple[EpochEntry, ...]) -> None:
        """Stores the cache's entries of `version` durably, unless newer entries are stored already.

        Any thread may call it. Raises OSError."""
        with self._lock:
            if version > self._written_version:
                self._disk.write_atomically(self.path, encode_checkpoint(entries))
                self._written_version = version
