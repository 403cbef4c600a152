"""Finds the logs in the log directories at a start. Some were being copied to another directory or deleted when the
broker stopped.

A crash may have interrupted a move or a deletion at any step (`log_move.py`, `log_deletion.py`). Obsolete directories
are removed. A directory that fails during the start goes offline with all its logs.
"""

from __future__ import annotations

import logging
import random
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from klamm.errors import BrokerError
from klamm.model import TopicPartition
from klamm.process import PROCESS
from klamm_broker.log.dirs.directory_names import (
    DELETE_SUFFIX,
    FUTURE_SUFFIX,
    current_name,
    parse_directory_name,
    unique_name,
)
from klamm_broker.log.dirs.log_directories import LogDirectories, LogDirectory
from klamm_broker.log.dirs.log_move import REPLACES_FILE, read_replaced
from klamm_broker.log.dirs.log_opener import LogOpener
from klamm_broker.log.files.checkpoints import (
    CLEANER_OFFSET_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_OFFSET_FILE,
    RECOVERY_POINT_FILE,
    CheckpointError,
    read_offsets,
)
from klamm_broker.log.files.clean_shutdown import take_clean_shutdown
from klamm_broker.log.files.partition_metadata import read_topic_id
from klamm_broker.log.files.storage_failure import LogDirError
from klamm_broker.log.log_config import LogConfig
from klamm_broker.log.partition.partition_log import PartitionLog
from klamm_broker.log.partition.pending_deletion import PendingDeletion
from klamm_server.runtime.disk import Disk

logger = logging.getLogger(__name__)


class _Found(NamedTuple):
    """A loaded partition directory."""

    log: PartitionLog
    is_future: bool
    replaces: uuid.UUID | None
    """The id of the log directory that the log is moved from, or None."""


class FoundLogs:
    """The logs that were found. `logs`, `futures` and `deletions` are set after `load` has returned."""

    def __init__(
        self, directories: LogDirectories, opener: LogOpener, *, disk: Disk, rng: random.Random, now_ms: int
    ) -> None:
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.futures: dict[TopicPartition, PartitionLog] = {}
        self.deletions: list[PendingDeletion] = []
        self._directories = directories
        self._opener = opener
        self._disk = disk
        self._rng = rng
        self._now_ms = now_ms

    def load(self, topic_config: Callable[[str], LogConfig], *, threads: int) -> None:
        """Loads all logs, with `threads` threads. Blocks. Raises LogDirError if a partition is found in two
        directories."""
        with PROCESS.get().make_executor(threads, "log-recovery") as executor:
            loading = []
            for directory in self._directories.online():
                for topic_partition, path in self._find_partitions(directory):
                    config = topic_config(topic_partition.topic)
                    loading.append(executor.submit(self._load_log, directory, topic_partition, path, config))
            found = [loaded for future in loading if (loaded := future.result()) is not None]
        for loaded in found:
            if not loaded.is_future:
                self._add_loaded(loaded, found)
        for loaded in found:
            if loaded.is_future:
                self._add_future(loaded.log)

    def _find_partitions(self, directory: LogDirectory) -> Iterator[tuple[TopicPartition, str]]:
        log_dir = directory.log_dir
        try:
            self._read_checkpoints(directory)
            names = self._disk.list_directories(log_dir.path)
        except OSError as error:
            logger.error("a log directory failed: %s", log_dir.take_offline(error, "load"))
            return
        for name in names:
            path = f"{log_dir.path}/{name}"
            if name.endswith(DELETE_SUFFIX):
                self.deletions.append(PendingDeletion(log_dir=log_dir, paths=(path,), due_ms=self._now_ms))
            elif (topic_partition := parse_directory_name(current_name(name))) is not None:
                yield topic_partition, path
            else:
                logger.warning("ignored dir=%s: expected the name of a topic and a partition", path)

    def _read_checkpoints(self, directory: LogDirectory) -> None:
        path = directory.log_dir.path
        directory.clean_shutdown_epoch = take_clean_shutdown(self._disk, path)
        # An unreadable checkpoint must not take the directory offline. As after a crash before its write, it costs a
        # longer scan (recovery points), another compaction (cleaner offsets), or serves deleted records again (start
        # offsets).
        directory.recovery_points = self._read_offsets(f"{path}/{RECOVERY_POINT_FILE}")
        directory.log_start_offsets = self._read_offsets(f"{path}/{LOG_START_OFFSET_FILE}")
        directory.high_watermarks = self._read_offsets(f"{path}/{HIGH_WATERMARK_FILE}")
        directory.cleaner_offsets = self._read_offsets(f"{path}/{CLEANER_OFFSET_FILE}")
        directory.checkpoint_order.cleaner_offsets = dict(directory.cleaner_offsets)

    def _read_offsets(self, path: str) -> dict[TopicPartition, int]:
        try:
            return read_offsets(self._disk, path)
        except CheckpointError as error:
            logger.warning("ignored a damaged file: %s", error)
            return {}

    def _load_log(
        self, directory: LogDirectory, topic_partition: TopicPartition, path: str, config: LogConfig
    ) -> _Found | None:
        """Loads a log, or returns None if its directory has failed. Runs on a recovery thread.

        Syncs the recovered records if `flush.messages` requires it, before anyone counts them."""
        if directory.log_dir.failure is not None:
            return None
        try:
            topic_id = read_topic_id(self._disk, path)
            replaces = read_replaced(self._disk, path)
            log = self._opener.open(
                directory.log_dir,
                path,
                topic_partition,
                topic_id,
                config,
                now_ms=self._now_ms,
                log_start_offset=directory.log_start_offsets.get(topic_partition, 0),
                recovery_point=directory.recovery_points.get(topic_partition, 0),
                clean_shutdown=directory.clean_shutdown_epoch is not None,
            )
        except OSError as error:
            logger.error(
                "a log directory failed: %s", directory.log_dir.take_offline(error, f"load of {topic_partition}")
            )
            return None
        try:
            log.sync_owed()
        except BrokerError as error:
            logger.error("could not sync a recovered log, partition=%s: %s", topic_partition, error)
        log.compaction.cleaned_to_offset = min(
            directory.cleaner_offsets.get(topic_partition, 0), log.flusher.recovery_point
        )
        return _Found(log, path.endswith(FUTURE_SUFFIX), replaces)

    def _add_loaded(self, loaded: _Found, found: Sequence[_Found]) -> None:
        """Adds a loaded log. If a partition has two logs because of a crash during a move, removes the log that was
        moved from."""
        log, name = loaded.log, loaded.log.topic_partition
        if self._is_replaced(loaded, found):
            logger.info(
                "deleting the old log of a partition that was moved to another log directory, log=%s", log.directory
            )
            self.deletions += self._retired(log)
            return
        other = self.logs.setdefault(name, log)
        if other is not log:
            raise LogDirError(
                f"{name} is in two log directories, {other.directory} and {log.directory}: remove the outdated one"
            )
        if loaded.replaces is not None and loaded.replaces in self._directories.ids().values():
            self._end_move(log)

    def _is_replaced(self, loaded: _Found, found: Sequence[_Found]) -> bool:
        return any(
            other.replaces == self._directory_id(loaded.log)
            and loaded.replaces != self._directory_id(other.log)
            and other.log.topic_partition == loaded.log.topic_partition
            for other in found
            if not other.is_future and other is not loaded
        )

    def _directory_id(self, log: PartitionLog) -> uuid.UUID:
        return self._directories.of(log.log_dir).directory_id

    def _end_move(self, log: PartitionLog) -> None:
        """Ends a move whose old log is gone, by removing `replaces.metadata`."""
        try:
            self._disk.remove([f"{log.directory}/{REPLACES_FILE}"])
        except OSError as error:
            logger.error("a log directory failed: %s", log.log_dir.failed(error, f"move of {log.topic_partition}"))

    def _add_future(self, log: PartitionLog) -> None:
        """Adds a future log, so that its move continues. Removes it if the current log is gone or belongs to another
        topic."""
        current = self.logs.get(log.topic_partition)
        if current is None and self._directories.unreadable():
            logger.warning("stopped copying log=%s: the current log is in no readable log directory", log.directory)
            log.abandon()
        elif (
            current is None
            or current.topic_id != log.topic_id
            or current.log_dir is log.log_dir
            or log.topic_partition in self.futures
        ):
            logger.info("deleting a stray log of an earlier move, log=%s", log.directory)
            self.deletions += self._retired(log)
        else:
            self.futures[log.topic_partition] = log

    def _retired(self, log: PartitionLog) -> list[PendingDeletion]:
        """Renames the directory of an obsolete log. Returns the directory for its removal."""
        log.abandon()
        renamed = f"{log.log_dir.path}/{unique_name(log.topic_partition, DELETE_SUFFIX, self._rng)}"
        try:
            self._disk.replace(log.directory, renamed)
        except OSError as error:
            logger.error("a log directory failed: %s", log.log_dir.failed(error, f"removal of {log.directory}"))
            return []
        return [PendingDeletion(log_dir=log.log_dir, paths=(renamed,), due_ms=self._now_ms)]
