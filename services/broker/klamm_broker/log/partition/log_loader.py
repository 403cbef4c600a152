"""Opens a partition directory, after a clean shutdown or after a crash.

After a clean shutdown, the files are complete, and the loader makes cheap checks only. After a crash, everything below
the recovery point is on disk and trusted. From the segment with the recovery point on, the loader reads and checks
every batch. It truncates the log at the first byte that does not continue the log with a valid batch. It removes the
segments after the cut, and leaves everything before the cut as it was.

The loader rebuilds indexes from their segment only if they are missing, damaged or of another log. The leader epochs
come from their file up to the scanned part, and from the batches in that part. Without a usable file, they come from
all batches. The state of idempotent producers comes from the latest snapshot and the batches after it
(`producer_recovery.py`).

Runs before the log is served, on any thread; different directories may be loaded at the same time. Follows Kafka's
`LogLoader`.
"""

from __future__ import annotations

import logging
import random
from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise

from klamm.records.header import BatchHeader
from klamm_broker.log.files.checkpoints import CheckpointError
from klamm_broker.log.files.leader_epochs import LeaderEpochCache, LeaderEpochFile
from klamm_broker.log.log_config import LogConfig
from klamm_broker.log.partition.leftovers import sweep_leftovers
from klamm_broker.log.partition.partition_log import LoadedLog
from klamm_broker.log.producers.log_producers import LogProducers
from klamm_broker.log.producers.producer_state import DEFAULT_IDS_MAX
from klamm_broker.log.segment.segment import Segment, roll_jitter_ms
from klamm_server.runtime.disk import Disk

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadContext:
    """The facts about a log that are known before its directory is read."""

    config: LogConfig
    log_start_offset: int
    """The offset in the log-start-offset checkpoint, or 0 if it has no row for this log."""
    recovery_point: int
    """The offset in the recovery-point checkpoint, or 0 if it has no row for this log."""
    clean_shutdown: bool
    now_ms: int
    producer_ids_max: int = DEFAULT_IDS_MAX
    """The value of `producer.ids.per.partition.max` (Klamm only)."""


def load_partition(disk: Disk, directory: str, context: LoadContext, rng: random.Random) -> LoadedLog:
    """Loads the log in the directory, creating the directory if it does not exist. Repairs damage from a crash. Raises
    OSError."""
    disk.make_directory(directory)
    return _Loader(disk, directory, context, rng).load()


class _Loader:
    def __init__(self, disk: Disk, directory: str, context: LoadContext, rng: random.Random) -> None:
        self._disk = disk
        self._directory = directory
        self._context = context
        self._rng = rng
        self._segments: list[Segment] = []
        self._epochs = LeaderEpochCache()
        self._cut = False
        """True if the directory differs from its state after a clean shutdown."""

    def load(self) -> LoadedLog:
        self._segments = [self._segment(offset) for offset in sweep_leftovers(self._disk, self._directory)]
        epoch_file = LeaderEpochFile(self._disk, self._directory)
        scanned_from = self._first_to_scan()
        for segment, following in pairwise(self._segments[: scanned_from + 1]):
            self._attach(segment, following.base_offset)
        self._read_epochs(epoch_file, scanned_from)
        self._scan_from(scanned_from)
        self._open_last()
        log_start_offset = max(self._context.log_start_offset, self._segments[0].base_offset)
        end_offset = self._segments[-1].next_offset
        self._epochs.truncate_from_end(end_offset)
        self._epochs.truncate_from_start(log_start_offset)
        trusted = self._context.clean_shutdown and not self._cut
        producers = LogProducers(self._disk, self._directory, ids_max=self._context.producer_ids_max)
        producers.reload(self._segments)
        return LoadedLog(
            segments=self._segments,
            epochs=self._epochs,
            epoch_file=epoch_file,
            producers=producers,
            log_start_offset=log_start_offset,
            recovery_point=end_offset if trusted else min(self._context.recovery_point, end_offset),
            is_durable=trusted,
        )

    def _segment(self, base_offset: int) -> Segment:
        config = self._context.config
        return Segment(
            self._disk,
            self._directory,
            base_offset,
            config=config,
            created_ms=self._context.now_ms,
            roll_jitter_ms=roll_jitter_ms(config, self._rng),
        )

    def _first_to_scan(self) -> int:
        """Returns the list position of the segment with the recovery point, or the length of the list if nothing must
        be scanned."""
        if self._context.clean_shutdown:
            return len(self._segments)
        bases = [segment.base_offset for segment in self._segments]
        return max(0, bisect_right(bases, self._context.recovery_point) - 1)

    def _attach(self, segment: Segment, end_offset: int) -> None:
        if not segment.attach(end_offset):
            segment.open()
            segment.rebuild_indexes()
            segment.release()

    def _read_epochs(self, file: LeaderEpochFile, scanned_from: int) -> None:
        trusted = self._segments[:scanned_from]
        try:
            self._epochs = file.read()
        except CheckpointError as error:
            logger.warning("rebuilt the leader epoch cache from the log, log=%s reason=%s", self._directory, error)
        if scanned_from < len(self._segments):
            # In the part to be scanned, the file may have epochs of records that a truncation removed.
            self._epochs.truncate_from_end(self._segments[scanned_from].base_offset)
        if not self._epochs.entries:
            for segment in trusted:
                self._collect_epochs(segment)

    def _collect_epochs(self, segment: Segment) -> None:
        segment.open()
        for header in segment.readable_headers():
            self._observe(header)
        segment.release()

    def _observe(self, header: BatchHeader) -> None:
        if header.partition_leader_epoch > self._epochs.latest_epoch:
            self._epochs.assign(header.partition_leader_epoch, header.base_offset)

    def _scan_from(self, first: int) -> None:
        for position in range(first, len(self._segments)):
            segment = self._segments[position]
            cut_bytes = segment.recover(self._observe)
            segment.release()
            if cut_bytes or self._lost_its_end(position):
                logger.warning(
                    "truncated the log at its last valid batch, log=%s truncated_bytes=%d end_offset=%d"
                    " removed_segments=%d",
                    self._directory,
                    cut_bytes,
                    segment.next_offset,
                    len(self._segments) - position - 1,
                )
                self._remove_segments(position + 1)
                return

    def _lost_its_end(self, position: int) -> bool:
        """Returns True if a segment ends before the next one begins, because whole batches were lost at its end.

        Compaction leaves such gaps on purpose, so the check does not apply to compacted topics."""
        if position + 1 == len(self._segments) or "compact" in self._context.config.cleanup_policy:
            return False
        return self._segments[position].next_offset != self._segments[position + 1].base_offset

    def _remove_segments(self, start: int) -> None:
        """Removes the segments from `start` on, newest first, so that a crash in between leaves a log without a gap."""
        self._cut = True
        while len(self._segments) > start:
            self._segments.pop().delete()

    def _open_last(self) -> None:
        """Makes the last segment the active one. If it is damaged, recovers it as after a crash."""
        if self._segments:
            last = self._segments[-1]
            last.open()
            if last.damaged_at is not None:
                self._cut = True
                self._epochs.truncate_from_end(last.base_offset)
                last.recover(self._observe)
            if last.next_offset < self._context.log_start_offset:
                logger.warning(
                    "segments were lost, so that the log starts empty, log=%s end_offset=%d log_start_offset=%d",
                    self._directory,
                    last.next_offset,
                    self._context.log_start_offset,
                )
                self._remove_segments(0)
                self._epochs.clear()
        if not self._segments:
            first = self._segment(self._context.log_start_offset)
            first.create()
            self._segments.append(first)
        self._segments[-1].activate()
