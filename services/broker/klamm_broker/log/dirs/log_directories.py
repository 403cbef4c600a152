"""The log directories of a broker: locks them, checks their ids, and knows how their last use ended.

A directory that fails is taken offline, and the other directories stay in service. If a directory that this broker had
is missing at the start, an empty directory is also taken offline (`meta_properties.py`).
"""

from __future__ import annotations

import logging
import random
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace

from klamm.errors import ErrorCode
from klamm.model import TopicPartition
from klamm_broker.log.files.dir_lock import DirectoryLock
from klamm_broker.log.files.log_checkpoint import CheckpointOrder
from klamm_broker.log.files.meta_properties import (
    META_PROPERTIES_FILE,
    MetaProperties,
    missing_directory_ids,
    read_meta_properties,
    write_meta_properties,
)
from klamm_broker.log.files.partition_metadata import encode_uuid
from klamm_broker.log.files.storage_failure import LogDir, LogDirError
from klamm_server.runtime.disk import Disk

logger = logging.getLogger(__name__)


class LogDirectory:
    """A log directory that this process uses: its lock, its identity, and how its last use ended."""

    def __init__(self, log_dir: LogDir) -> None:
        self.log_dir = log_dir
        self.lock: DirectoryLock | None = None
        self.properties: MetaProperties | None = None
        self.clean_shutdown_epoch: int | None = None
        self.checkpoint_order = CheckpointOrder()
        self.recovery_points: dict[TopicPartition, int] = {}
        self.log_start_offsets: dict[TopicPartition, int] = {}
        self.cleaner_offsets: dict[TopicPartition, int] = {}
        self.high_watermarks: dict[TopicPartition, int] = {}
        """The last checkpointed high watermarks. The replicas own the current values; these remain after a replica is
        gone."""

    @property
    def directory_id(self) -> uuid.UUID:
        """The id of a log directory that is or was online."""
        assert self.properties is not None, self.log_dir.path
        return self.properties.directory_id


class LogDirectories:
    """All log directories in the order of `log.dirs`. They are usable after `claim` has returned."""

    def __init__(
        self,
        paths: Sequence[str],
        *,
        node_id: int,
        lost_ids: frozenset[uuid.UUID],
        disk: Disk,
        rng: random.Random,
    ) -> None:
        self._node_id = node_id
        self._lost_ids = lost_ids
        self._disk = disk
        self._rng = rng
        self._directories = [LogDirectory(LogDir(path)) for path in paths]
        self._missing_ids: frozenset[uuid.UUID] = frozenset()
        """The ids of log directories that this broker had and that are missing. They may have logs that are in no other
        directory."""

    def __iter__(self) -> Iterator[LogDirectory]:
        return iter(self._directories)

    def __len__(self) -> int:
        return len(self._directories)

    def online(self) -> list[LogDirectory]:
        return [directory for directory in self._directories if directory.log_dir.failure is None]

    def offline(self) -> dict[str, str]:
        """Returns the failure of each failed directory, by path."""
        dirs = (directory.log_dir for directory in self._directories)
        return {log_dir.path: log_dir.failure for log_dir in dirs if log_dir.failure is not None}

    def unreadable(self) -> list[str]:
        """Returns the directories that may have logs which no online directory has: failed ones and missing ones."""
        missing = (
            f"the log dir with directory.id {encode_uuid(missing_id)}" for missing_id in sorted(self._missing_ids)
        )
        return [*self.offline(), *missing]

    def ids(self) -> dict[str, uuid.UUID]:
        """Returns the ids of the online log directories, by path."""
        return {
            directory.log_dir.path: directory.directory_id
            for directory in self.online()
            if directory.properties is not None
        }

    def clean_shutdown_epoch(self) -> int | None:
        """Returns the broker epoch of the last clean shutdown, or None unless all directories had the same clean
        shutdown."""
        epochs = {directory.clean_shutdown_epoch for directory in self._directories}
        return epochs.pop() if len(epochs) == 1 else None

    def of(self, log_dir: LogDir) -> LogDirectory:
        return next(directory for directory in self._directories if directory.log_dir is log_dir)

    def at(self, path: str) -> LogDirectory:
        """Returns the directory with this path. Raises the exception of LOG_DIR_NOT_FOUND."""
        for directory in self._directories:
            if directory.log_dir.path == path:
                return directory
        known = ", ".join(directory.log_dir.path for directory in self._directories)
        raise ErrorCode.LOG_DIR_NOT_FOUND.exception(
            f"{path!r} is not a log directory of this broker; expected one of {known}"
        )

    def unlock(self) -> None:
        for directory in self._directories:
            if directory.lock is not None:
                directory.lock.release()

    # Claiming

    def claim(self, cluster_id: str) -> None:
        """Locks each directory for this broker and cluster, and formats the new ones.

        Raises LogDirError if a directory belongs to another broker or cluster, or if none can be used."""
        try:
            for directory in self._directories:
                self._claim(directory, cluster_id)
            self._format_new(cluster_id)
        except LogDirError:
            self.unlock()
            raise
        if not self.online():
            reasons = (f"{path}: {reason}" for path, reason in self.offline().items())
            raise LogDirError(f"no log directory can be used: {'; '.join(reasons)}")

    def _claim(self, directory: LogDirectory, cluster_id: str) -> None:
        path = directory.log_dir.path
        try:
            self._disk.make_directory(path)
            directory.lock = DirectoryLock(self._disk, path)
            directory.properties = read_meta_properties(self._disk, path, cluster_id=cluster_id, node_id=self._node_id)
        except OSError as error:
            logger.error("a log directory failed: %s", directory.log_dir.take_offline(error, "open"))

    def _format_new(self, cluster_id: str) -> None:
        """Formats the new directories. While a directory that this broker had is missing, no directory counts as
        new."""
        found = [directory.properties for directory in self._directories if directory.properties is not None]
        self._missing_ids = missing_directory_ids(found, lost=self._lost_ids)
        missing = ",".join(map(encode_uuid, sorted(self._missing_ids)))
        if missing:
            logger.error(
                "log directories of this broker are not mounted (directory.id %s): mount or configure them, or set"
                " log.dirs.lost=%s if they and their records are lost forever",
                missing,
                missing,
            )
        for directory in self.online():
            if directory.properties is not None:
                continue
            if missing:
                directory.log_dir.failure = (
                    f"the directory may be the mount point of a missing log directory (directory.id {missing})"
                )
                logger.error("%s has no meta.properties: %s", directory.log_dir.path, directory.log_dir.failure)
            else:
                self._format(directory, cluster_id)
        self._note_siblings()

    def _format(self, directory: LogDirectory, cluster_id: str) -> None:
        new_id = uuid.UUID(int=self._rng.getrandbits(128), version=4)
        properties = MetaProperties(
            cluster_id=cluster_id,
            node_id=self._node_id,
            directory_id=new_id,
            broker_directory_ids=frozenset({new_id}),
        )
        try:
            write_meta_properties(self._disk, directory.log_dir.path, properties)
            directory.properties = properties
        except OSError as error:
            logger.error("a log directory failed: %s", directory.log_dir.take_offline(error, "format"))

    def _note_siblings(self) -> None:
        """Stores the ids of all directories in each directory, after the new ones were formatted. A directory that
        could not be formatted is left out, so that it does not count as missing later."""
        ids = self._missing_ids.union(self.ids().values())
        for directory in self.online():
            assert directory.properties is not None, directory.log_dir.path
            properties = replace(directory.properties, broker_directory_ids=ids)
            if properties == directory.properties:
                continue
            try:
                write_meta_properties(self._disk, directory.log_dir.path, properties)
                directory.properties = properties
            except OSError as error:
                # A full disk must not stop the start, because the broker's retention may free space. The next start
                # tries again.
                logger.error("a log directory failed: %s", directory.log_dir.failed(error, "update of meta.properties"))


def stored_cluster_id(disk: Disk, paths: Sequence[str]) -> str:
    """Returns the id of the cluster that the log directories were used in, or "" if all of them are new. Raises
    LogDirError if `meta.properties`, which has the id, is damaged."""
    for log_dir in paths:
        path = f"{log_dir}/{META_PROPERTIES_FILE}"
        try:
            if disk.exists(path):
                return MetaProperties.decode(log_dir, disk.read_file(path)).cluster_id
        except OSError as error:
            logger.error("could not read log_dir=%s: %s", log_dir, error)
    return ""
