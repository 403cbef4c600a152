"""Owns all partition logs of a broker, over one or more `log.dirs`. Kafka's `LogManager`.

The manager loads logs, applies retention, and closes logs. Its parts do the rest:

| part | module | what it does |
|---|---|---|
| `hosted` | `hosted_logs.py` | knows the logs by partition |
| `directories` | `log_directories.py` | knows the log directories: their ids, and which failed |
| `creation` | `log_creation.py` | creates logs |
| `deletion` | `log_deletion.py` | takes logs out of service and removes their directories |
| `moves` | `log_move.py` | moves logs to another log directory |
| `checkpoints` | `log_checkpoints.py` | stores the offsets that recovery relies on after a crash |

A log directory that fails is taken offline with its logs, and the other directories stay in service. Threads may call:

- before serving: `load`, which uses its own threads;
- event loop: everything else. Only truncations wait for the disk, and these are rare;
- disk threads: `run()` of the jobs that the event loop planned (`FlushJob`, `CheckpointJob`, `CreationJob`,
  `DeletionJob`) and `LogDeletion.remove_files`. At most one round of flushes and checkpoints runs at a time, and at
  most one round of deletions and creations. The caller plans the next round after the last one has ended;
- after serving: `close`.
"""

from __future__ import annotations

import logging
import random
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from klamm.errors import BrokerError, KlammError
from klamm.model import TopicPartition
from klamm.process import PROCESS
from klamm_broker.log.dirs.found_logs import FoundLogs
from klamm_broker.log.dirs.hosted_logs import HostedLogs
from klamm_broker.log.dirs.log_checkpoints import LogCheckpoints
from klamm_broker.log.dirs.log_creation import LogCreation
from klamm_broker.log.dirs.log_deletion import LogDeletion
from klamm_broker.log.dirs.log_dir_description import LogDirDescription, describe_log_dir
from klamm_broker.log.dirs.log_directories import LogDirectories, LogDirectory
from klamm_broker.log.dirs.log_move import LogMoves
from klamm_broker.log.dirs.log_opener import LogOpener
from klamm_broker.log.files.clean_shutdown import write_clean_shutdown
from klamm_broker.log.files.meta_properties import decode_uuids
from klamm_broker.log.log_config import LogConfig
from klamm_broker.log.partition.log_flush import FlushJob
from klamm_broker.log.partition.partition_log import PartitionLog
from klamm_broker.log.partition.pending_deletion import PendingDeletion
from klamm_broker.log.producers.producer_state import DEFAULT_IDS_MAX
from klamm_broker.log.segment.segment_pool import SegmentPool
from klamm_server.config.broker_configs import BrokerConfig
from klamm_server.runtime.disk import Disk

CLOSING_THREADS = 8
"""How many logs wait for the disk at the same time while they are closed. A file system commits all waiting writes
together."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogManagerConfig:
    """The settings of the log manager."""

    log_dirs: tuple[str, ...]
    """The paths of `log.dirs`."""
    node_id: int
    lost_directory_ids: frozenset[uuid.UUID] = frozenset()
    """The ids in `log.dirs.lost` (Klamm only): log directories that do not count as missing."""
    open_segments_max: int = 512
    """The value of `log.open.segments.max` (Klamm only): how many sealed segments of all logs stay open for reading."""
    recovery_threads_per_data_dir: int = 2
    """The value of `num.recovery.threads.per.data.dir`."""
    producer_ids_max: int = DEFAULT_IDS_MAX
    """The value of `producer.ids.per.partition.max` (Klamm only)."""

    def __post_init__(self) -> None:
        assert self.log_dirs, "log.dirs is empty"
        assert self.open_segments_max > 0, self.open_segments_max
        assert self.recovery_threads_per_data_dir > 0, self.recovery_threads_per_data_dir

    @classmethod
    def of(cls, config: BrokerConfig) -> LogManagerConfig:
        return cls(
            log_dirs=config.data_dirs,
            node_id=config.node_id,
            lost_directory_ids=decode_uuids(config.log_dirs_lost),
            open_segments_max=config.log_open_segments_max,
            recovery_threads_per_data_dir=config.num_recovery_threads_per_data_dir,
            producer_ids_max=config.producer_ids_per_partition_max,
        )


class LogManager:
    """All logs of a broker: loads them, applies retention, and closes them. Its parts have the other operations."""

    def __init__(self, config: LogManagerConfig, disk: Disk, rng: random.Random) -> None:
        self._config = config
        self._closing_threads = max(CLOSING_THREADS, config.recovery_threads_per_data_dir)
        self._disk = disk
        self._rng = rng
        self._opener = opener = LogOpener(
            disk=disk,
            pool=SegmentPool(config.open_segments_max),
            rng=rng,
            producer_ids_max=config.producer_ids_max,
        )
        self.hosted = hosted = HostedLogs()
        self.directories = directories = LogDirectories(
            config.log_dirs,
            node_id=config.node_id,
            lost_ids=config.lost_directory_ids,
            disk=disk,
            rng=rng,
        )
        self.checkpoints = LogCheckpoints(hosted, directories, disk)
        self.creation = LogCreation(hosted, directories, opener, disk)
        self.deletion = LogDeletion(hosted, directories, self.checkpoints, disk, rng)
        self.moves = LogMoves(hosted, directories, self.deletion, self.checkpoints, opener, disk, rng)
        self.is_loaded = False

    def reconfigure(self, config: BrokerConfig) -> None:
        """Applies the new configuration. `num.recovery.threads.per.data.dir` also sets the threads that close logs, if
        it is above CLOSING_THREADS."""
        self._closing_threads = max(CLOSING_THREADS, config.num_recovery_threads_per_data_dir)

    def load(self, cluster_id: str, topic_config: Callable[[str], LogConfig], *, now_ms: int) -> list[PendingDeletion]:
        """Claims the log directories for a cluster and opens all partitions in them. Blocks, with
        `recovery_threads_per_data_dir` threads per directory.

        Returns directories whose deletion the last process had not finished. Raises LogDirError as
        `LogDirectories.claim`, or if a partition is found in two directories."""
        self.directories.claim(cluster_id)
        found = FoundLogs(self.directories, self._opener, disk=self._disk, rng=self._rng, now_ms=now_ms)
        found.load(topic_config, threads=self._config.recovery_threads_per_data_dir * len(self.directories))
        self.hosted.current, self.hosted.futures = found.logs, found.futures
        self.is_loaded = True
        return found.deletions

    def get(self, topic_partition: TopicPartition) -> PartitionLog | None:
        """Returns the current log, even if its directory is offline. Calls of an offline log raise LogDirFailure."""
        return self.hosted.current.get(topic_partition)

    # Background work

    def complete_flush(self, job: FlushJob) -> None:
        """Completes a flush after `job.run()` of a log's flusher has returned, if the log still exists."""
        for log in self.hosted.of(job.topic_partition):
            if log.log_dir is job.log_dir:
                log.flusher.complete(job)

    def apply_retention(
        self, high_watermark: Callable[[TopicPartition], int], *, now_ms: int
    ) -> dict[TopicPartition, PendingDeletion]:
        """Drops the expired segments of every log. Called every `log.retention.check.interval.ms`.

        Returns the files to remove later, by partition. The log of each of these partitions may begin later now."""
        deletions = {}
        for log in self.hosted.online():
            mark = high_watermark(log.topic_partition)
            try:
                deletion = log.retention.apply(now_ms=now_ms, high_watermark=mark)
            except BrokerError as error:
                logger.error("could not delete expired segments, partition=%s: %s", log.topic_partition, error)
                continue
            if deletion is not None:
                deletions[log.topic_partition] = deletion
        return deletions

    def describe_log_dirs(self) -> list[LogDirDescription]:
        return [describe_log_dir(directory, self.hosted, self._disk) for directory in self.directories]

    # Stopping

    def close(self, *, broker_epoch: int, high_watermarks: Mapping[TopicPartition, int] = MappingProxyType({})) -> None:
        """Flushes and closes all logs, writes the clean-shutdown marker into each directory that succeeded, and unlocks
        all directories.

        Does nothing unless the logs are loaded, because a directory that was not read must not get a clean-shutdown
        marker. A log without an entry in `high_watermarks` keeps its last checkpoint. A directory that fails is logged,
        and recovers at the next start."""
        if not self.is_loaded:
            return
        self.is_loaded = False
        self.checkpoints.note_high_watermarks(high_watermarks)
        for directory in self.directories:
            try:
                if directory.log_dir.failure is None:
                    self._close(directory, broker_epoch)
            except KlammError as error:
                logger.error("could not close the logs of a directory: %s", error)
            for log in self.hosted.in_dir(directory.log_dir):
                log.abandon()
        self.hosted.current.clear()
        self.hosted.futures.clear()
        self.directories.unlock()

    def _close(self, directory: LogDirectory, broker_epoch: int) -> None:
        log_dir = directory.log_dir
        with PROCESS.get().make_executor(self._closing_threads, "log-closing") as executor:
            for _ in executor.map(PartitionLog.close, self.hosted.in_dir(log_dir)):
                pass
        self.checkpoints.plan_of(log_dir).run()
        try:
            write_clean_shutdown(self._disk, log_dir.path, broker_epoch)
        except OSError as error:
            raise log_dir.failed(error, "clean shutdown") from error
