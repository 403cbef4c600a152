"""The log dirs of a broker: claimed and locked, known by their ids, and how their last use ended.

One that fails is taken offline; the others serve on. So is an empty one, at the start, while one that this broker had
is missing (`meta_properties.py`).
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
from klamm_broker.log.files.disk import Disk
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

logger = logging.getLogger(__name__)


class LogDirectory:
    """A log dir this process uses: its lock, its identity, and how the last use ended."""

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
        """The high watermarks last checkpointed: the replicas own them, the file outlives the replicas."""

    @property
    def directory_id(self) -> uuid.UUID:
        """The id of a log dir that is online, or was."""
        assert self.properties is not None, self.log_dir.path
        return self.properties.directory_id


class LogDirectories:
    """All of them, in the order of `log.dirs`, from the start on; of use once `claim` returned."""

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
        """Ids of log dirs that this broker had, and has no more: they may hold what is nowhere else."""

    def __iter__(self) -> Iterator[LogDirectory]:
        return iter(self._directories)

    def __len__(self) -> int:
        return len(self._directories)

    def online(self) -> list[LogDirectory]:
        return [directory for directory in self._directories if directory.log_dir.failure is None]

    def offline(self) -> dict[str, str]:
        """Path and reason of each that failed."""
        dirs = (directory.log_dir for directory in self._directories)
        return {log_dir.path: log_dir.failure for log_dir in dirs if log_dir.failure is not None}

    def unreadable(self) -> list[str]:
        """Where a log may be that none of those online has: those that failed, and those that are missing."""
        missing = (f"the log dir with directory.id {encode_uuid(one)}" for one in sorted(self._missing_ids))
        return [*self.offline(), *missing]

    def ids(self) -> dict[str, uuid.UUID]:
        """The ids of the log dirs that are online, by path."""
        return {
            directory.log_dir.path: directory.directory_id
            for directory in self.online()
            if directory.properties is not None
        }

    def clean_shutdown_epoch(self) -> int | None:
        """The broker epoch of the last orderly stop, None unless every dir says that there was one."""
        epochs = {directory.clean_shutdown_epoch for directory in self._directories}
        return epochs.pop() if len(epochs) == 1 else None

    def of(self, log_dir: LogDir) -> LogDirectory:
        return next(directory for directory in self._directories if directory.log_dir is log_dir)

    def at(self, path: str) -> LogDirectory:
        """Raises the exception of LOG_DIR_NOT_FOUND."""
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
        """Locks each for this broker of that cluster, and formats those that are new.

        Raises LogDirError when one is another's, or none can be used."""
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
            logger.error("%s", directory.log_dir.take_offline(error, "open"))

    def _format_new(self, cluster_id: str) -> None:
        """Formats the dirs that are new; none of them counts as new while one that this broker had is missing."""
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
            logger.error("%s", directory.log_dir.take_offline(error, "format"))

    def _note_siblings(self) -> None:
        """Lets each dir know all, once those that are new are formatted: what could not be is not to be missed."""
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
                # A full disk is no reason to refuse the one that is to help it; the next start tries again.
                logger.error("%s", directory.log_dir.failed(error, "update of meta.properties"))


def stored_cluster_id(disk: Disk, paths: Sequence[str]) -> str:
    """Returns the id of the cluster that the log dirs were used in, or "" if all of them are new.

    Raises LogDirError if `meta.properties`, which has the id, is damaged."""
    for log_dir in paths:
        path = f"{log_dir}/{META_PROPERTIES_FILE}"
        try:
            if disk.exists(path):
                return MetaProperties.decode(log_dir, disk.read_file(path)).cluster_id
        except OSError as error:
            logger.error("could not read log_dir=%s: %s", log_dir, error)
    return ""
