"""All partition logs of a broker, over one or more `log.dirs`. Kafka's `LogManager`.

A log dir that fails is taken offline with the logs in it; the others serve on. Which thread may call what:

- before serving: the constructor and `load`, which uses threads of its own;
- event loop: everything else, none of it waiting for the disk but truncations, which are rare;
- disk threads: `run()` of what the event loop was handed (`FlushJob`, `CheckpointJob`, `CreationJob`,
  `DeletionJob`) and `remove_files`. At most one round of flushes and checkpoints is under way at a time, and at most
  one of deletions and creations: the shell plans the next when the last is done;
- after serving: `close`.
"""

from __future__ import annotations

import logging
import random
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from klamm.errors import BrokerError, ErrorCode, KlammError
from klamm.model import TopicPartition
from klamm_broker.log.clean_shutdown import write_clean_shutdown
from klamm_broker.log.directory_names import DELETE_SUFFIX, current_name, parse_directory_name, unique_name
from klamm_broker.log.disk import Disk
from klamm_broker.log.found_logs import FoundLogs
from klamm_broker.log.log_checkpoint import CheckpointJob, HighWatermarkJob
from klamm_broker.log.log_config import LogConfig
from klamm_broker.log.log_creation import CreationJob, NewLog
from klamm_broker.log.log_deletion import DeletionJob, DoomedLog
from klamm_broker.log.log_directories import LogDirectories, LogDirectory
from klamm_broker.log.log_flush import FlushJob
from klamm_broker.log.log_move import FUTURE_SUFFIX, FutureCreationJob, SwapJob
from klamm_broker.log.log_opener import LogOpener
from klamm_broker.log.partition_log import PartitionLog, PendingDeletion
from klamm_broker.log.producer_state import DEFAULT_IDS_MAX
from klamm_broker.log.segment_pool import SegmentPool
from klamm_broker.log.storage_failure import LogDir

_CLOSING_THREADS = 8
"""How many logs wait for the disk at once: a file system commits what is waiting together."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogManagerConfig:
    """Settings of this process."""

    log_dirs: tuple[str, ...]
    """`log.dirs`."""
    cluster_id: str
    node_id: int
    lost_directory_ids: frozenset[uuid.UUID] = frozenset()
    """`log.dirs.lost` (ours): log dirs that are not to be missed."""
    open_segments_max: int = 512
    """`log.open.segments.max` (ours): sealed segments kept open for reading, over all logs."""
    recovery_threads_per_data_dir: int = 2
    """`num.recovery.threads.per.data.dir`."""
    producer_ids_max: int = DEFAULT_IDS_MAX
    """`producer.ids.per.partition.max` (ours)."""

    def __post_init__(self) -> None:
        assert self.log_dirs, "log.dirs is empty"
        assert self.open_segments_max > 0, self.open_segments_max
        assert self.recovery_threads_per_data_dir > 0, self.recovery_threads_per_data_dir


class ReplicaOnDisk(NamedTuple):
    """One log of a dir that is online."""

    log: PartitionLog
    is_future: bool
    offset_lag: int
    """Of a future log, behind the current one; else 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirDescription:
    """One row of DescribeLogDirs."""

    path: str
    directory_id: uuid.UUID | None
    """None if the dir could not be opened."""
    error_code: ErrorCode
    total_bytes: int
    """-1 if unknown, as `usable_bytes`."""
    usable_bytes: int
    replicas: tuple[ReplicaOnDisk, ...]


class LogManager:
    """See the module's docstring. The constructor locks and claims each dir; raises LogDirError."""

    def __init__(self, config: LogManagerConfig, disk: Disk, rng: random.Random) -> None:
        self._config = config
        self._disk = disk
        self._rng = rng
        self._log_opener = LogOpener(
            disk=disk,
            pool=SegmentPool(config.open_segments_max),
            rng=rng,
            producer_ids_max=config.producer_ids_max,
        )
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._futures: dict[TopicPartition, PartitionLog] = {}
        self._replaced: set[tuple[LogDir, TopicPartition]] = set()
        """Moved from that dir, where the directory has its name still for a moment."""
        self._leaving: dict[TopicPartition, PartitionLog] = {}
        """Deleted, but the directory has its name still: for a moment, or for good if renaming it failed."""
        self._directories = LogDirectories(
            config.log_dirs,
            cluster_id=config.cluster_id,
            node_id=config.node_id,
            lost_ids=config.lost_directory_ids,
            disk=disk,
            rng=rng,
        )

    def load(self, topic_config: Callable[[str], LogConfig], *, now_ms: int) -> list[PendingDeletion]:
        """Opens every partition found in the log dirs; blocks, with `recovery_threads_per_data_dir` threads per dir.

        Returns directories that were being deleted when the last process ended. Raises LogDirError if a partition
        is found in two dirs."""
        found = FoundLogs(self._directories, self._log_opener, disk=self._disk, rng=self._rng, now_ms=now_ms)
        found.load(topic_config, threads=self._config.recovery_threads_per_data_dir * len(self._directories))
        self._logs, self._futures = found.logs, found.futures
        return found.deletions

    # Logs

    def get(self, topic_partition: TopicPartition) -> PartitionLog | None:
        """The log, also one whose dir went offline (its calls then raise LogDirFailure)."""
        return self._logs.get(topic_partition)

    @property
    def logs(self) -> Mapping[TopicPartition, PartitionLog]:
        return self._logs

    def plan_creation(
        self, wanted: Sequence[NewLog], *, now_ms: int
    ) -> tuple[list[CreationJob], dict[TopicPartition, BrokerError]]:
        """Step 1 of a creation (`log_creation.py`): each new log goes into the online dir with the fewest.

        None of `wanted` may have a log. Also returns why those that no job has cannot be made."""
        counts = {directory.log_dir: len(self._logs_in(directory)) for directory in self._directories.online()}
        placed: dict[LogDir, list[NewLog]] = {}
        refused: dict[TopicPartition, BrokerError] = {}
        for new in wanted:
            assert new.topic_partition not in self._logs, new
            former = self._leaving.get(new.topic_partition)
            if former is not None or not counts:
                reason = "no log dir is online" if former is None else f"{former.directory} could not be moved away"
                refused[new.topic_partition] = ErrorCode.KAFKA_STORAGE_ERROR.exception(reason)
                continue
            free = [one for one in counts if (one, new.topic_partition) not in self._replaced]
            log_dir = min(free or counts, key=counts.__getitem__)
            counts[log_dir] += 1
            placed.setdefault(log_dir, []).append(new)
        return [self._creation_job(log_dir, logs, now_ms) for log_dir, logs in placed.items()], refused

    def _creation_job(self, log_dir: LogDir, logs: Sequence[NewLog], now_ms: int) -> CreationJob:
        open_log = self._opener(log_dir, now_ms)
        return CreationJob(disk=self._disk, log_dir=log_dir, logs=tuple(logs), open_log=open_log)

    def _opener(self, log_dir: LogDir, now_ms: int) -> Callable[[NewLog, str], PartitionLog]:
        def open_log(new: NewLog, path: str) -> PartitionLog:
            return self._log_opener.open(log_dir, path, new.topic_partition, new.topic_id, new.config, now_ms=now_ms)

        return open_log

    def complete_creation(
        self, job: CreationJob, outcomes: Sequence[PartitionLog | BrokerError]
    ) -> dict[TopicPartition, BrokerError]:
        """Step 3 of a creation, with what `job.run()` returned. Returns why the logs that are missing are."""
        failures = {}
        for new, outcome in zip(job.logs, outcomes, strict=True):
            if isinstance(outcome, PartitionLog):
                self._logs[new.topic_partition] = outcome
            else:
                failures[new.topic_partition] = outcome
        return failures

    def plan_deletion(self, doomed: Iterable[TopicPartition], *, now_ms: int) -> list[DeletionJob]:
        """Step 1 of a deletion (`log_deletion.py`): takes the logs out of service at once.

        Each of `doomed` must have a log. Those in a dir that is offline stay: the next start finds them to be
        strays."""
        leaving: dict[LogDir, list[DoomedLog]] = {}
        for topic_partition in doomed:
            log = self._logs[topic_partition]
            if log.log_dir.failure is not None:
                logger.error("partition=%s not deleted: %s", topic_partition, log.log_dir.failure)
                continue
            self._leaving[topic_partition] = self._logs.pop(topic_partition)
            leaving.setdefault(log.log_dir, []).append(self._doomed(log, now_ms))
            future = self._futures.pop(topic_partition, None)
            if future is not None and future.log_dir.failure is None:
                leaving.setdefault(future.log_dir, []).append(self._doomed(future, now_ms))
        return [self._deletion_job(log_dir, logs) for log_dir, logs in leaving.items()]

    def _doomed(self, log: PartitionLog, now_ms: int) -> DoomedLog:
        log.abandon()
        renamed = f"{log.log_dir.path}/{unique_name(log.topic_partition, DELETE_SUFFIX, self._rng)}"
        return DoomedLog(log.topic_partition, log.directory, renamed, now_ms + log.config.file_delete_delay_ms)

    def _deletion_job(self, log_dir: LogDir, logs: Sequence[DoomedLog]) -> DeletionJob:
        directory = self._directories.of(log_dir)
        for doomed in logs:
            directory.high_watermarks.pop(doomed.topic_partition, None)
        return DeletionJob(
            disk=self._disk, log_dir=log_dir, logs=tuple(logs), checkpoint=self._checkpoint_of(directory)
        )

    def complete_deletion(self, job: DeletionJob) -> list[PendingDeletion]:
        """Step 3 of a deletion, after `job.run()` returned. What is still to be removed."""
        for doomed in job.logs:
            former = self._leaving.get(doomed.topic_partition)
            if former is not None and former.directory == doomed.directory:
                del self._leaving[doomed.topic_partition]
        return [
            PendingDeletion(log_dir=job.log_dir, paths=(doomed.renamed,), due_ms=doomed.due_ms) for doomed in job.logs
        ]

    def store_recovery_points(self, truncated: Iterable[TopicPartition]) -> None:
        """After truncations, before the next append to those logs: stores where they are to be recovered from. Blocks.

        Else a crash would trust, unread, records written later in the place of those cut."""
        logs = [log for name in truncated for log in (self._logs.get(name), self._futures.get(name)) if log is not None]
        for log_dir in dict.fromkeys(log.log_dir for log in logs):
            self._checkpoint_of(self._directories.of(log_dir)).run()

    def remove_files(self, deletion: PendingDeletion) -> None:
        """Removes what a deletion left behind. Disk thread. Raises LogDirFailure."""
        deletion.log_dir.check_online()
        try:
            for path in deletion.paths:
                if path.endswith(DELETE_SUFFIX):
                    self._disk.remove_tree(path)
                else:
                    self._disk.remove([path])
        except OSError as error:
            raise deletion.log_dir.failed(error, "deletion") from error

    # Moves between log dirs (`log_move.py`)

    @property
    def futures(self) -> Mapping[TopicPartition, PartitionLog]:
        """The logs that are being copied to another dir."""
        return self._futures

    def plan_move(self, topic_partition: TopicPartition, path: str, *, now_ms: int) -> FutureCreationJob | None:
        """A future log in the log dir `path` for a partition that has a log and no future one; None: it is there.

        Raises the exception of LOG_DIR_NOT_FOUND, LogDirFailure, or KafkaStorageError."""
        current = self._logs[topic_partition]
        assert topic_partition not in self._futures, topic_partition
        directory = self._directories.at(path)
        current.log_dir.check_online()
        directory.log_dir.check_online()
        if directory.log_dir is current.log_dir:
            return None
        if self._disk.exists(f"{path}/{topic_partition}"):
            raise ErrorCode.KAFKA_STORAGE_ERROR.exception(f"{path} has a directory {topic_partition} already")
        name = unique_name(topic_partition, FUTURE_SUFFIX, self._rng)
        if parse_directory_name(current_name(name)) != topic_partition:
            raise ErrorCode.INVALID_REQUEST.exception(f"{topic_partition}: the name is too long for a directory {name}")
        assert current.topic_id is not None, topic_partition
        return FutureCreationJob(
            disk=self._disk,
            log_dir=directory.log_dir,
            new=NewLog(topic_partition=topic_partition, topic_id=current.topic_id, config=current.config),
            directory=f"{path}/{name}",
            replaces=self._directories.of(current.log_dir).directory_id,
            open_log=self._opener(directory.log_dir, now_ms),
        )

    def check_log_dir(self, path: str) -> None:
        """Raises the exception of LOG_DIR_NOT_FOUND, or LogDirFailure."""
        self._directories.at(path).log_dir.check_online()

    def complete_move(self, log: PartitionLog) -> None:
        """The future log is there: what `FutureCreationJob.run` returned."""
        self._futures[log.topic_partition] = log

    def plan_cancellation(self, topic_partition: TopicPartition, *, now_ms: int) -> DeletionJob | None:
        """Takes the future log out; None when there is none, or its dir is offline. Then as `plan_deletion`."""
        future = self._futures.pop(topic_partition, None)
        if future is None:
            return None
        if future.log_dir.failure is not None:
            future.abandon()
            return None
        return self._deletion_job(future.log_dir, [self._doomed(future, now_ms)])

    def swap(self, topic_partition: TopicPartition, *, now_ms: int) -> SwapJob:
        """The future log, which has all records of the current one, takes its place at once.

        Raises LogDirFailure or DiskFull, and then nothing has changed."""
        current, future = self._logs[topic_partition], self._futures[topic_partition]
        assert future.log_end_offset == current.log_end_offset, (future.log_end_offset, current.log_end_offset)
        directory = f"{future.log_dir.path}/{topic_partition}"
        try:
            future.producers.take_over(current.producers, end_offset=future.log_end_offset)
            self._disk.replace(future.directory, directory)
        except OSError as error:
            raise future.log_dir.failed(error, f"move of {topic_partition}") from error
        future.relocate(directory)
        future.config = current.config
        if current.epochs.latest_epoch > future.epochs.latest_epoch:
            # All records of it are gone.
            future.epochs.assign(current.epochs.latest_epoch, future.log_end_offset)
        self._logs[topic_partition] = self._futures.pop(topic_partition)
        self._replaced.add((current.log_dir, topic_partition))
        before, after = self._directories.of(current.log_dir), self._directories.of(future.log_dir)
        after.high_watermarks[topic_partition] = before.high_watermarks.pop(topic_partition, 0)
        return SwapJob(
            disk=self._disk,
            log_dir=future.log_dir,
            directory=directory,
            old_log_dir=current.log_dir,
            doomed=self._doomed(current, now_ms),
            checkpoints=(self._checkpoint_of(after), self._checkpoint_of(before)),
        )

    def complete_swap(self, job: SwapJob) -> PendingDeletion:
        """After `job.run()` returned. What is still to be removed."""
        self._replaced.discard((job.old_log_dir, job.doomed.topic_partition))
        return PendingDeletion(log_dir=job.old_log_dir, paths=(job.doomed.renamed,), due_ms=job.doomed.due_ms)

    # Background work

    def all_logs(self) -> list[PartitionLog]:
        """The current ones, and those that are being copied."""
        return [*self._logs.values(), *self._futures.values()]

    def plan_flushes(self, *, now_ms: int) -> list[FlushJob]:
        """Jobs for the logs that are due. Run each on a disk thread, then call `complete_flush` on the event loop."""
        jobs = []
        for log in self._online_logs():
            try:
                if log.flush_due(now_ms):
                    jobs.append(log.plan_flush())
            except BrokerError as error:
                logger.error("flush=%s %s", log.topic_partition, error)
        return jobs

    def complete_flush(self, job: FlushJob) -> None:
        for log in (self._logs.get(job.topic_partition), self._futures.get(job.topic_partition)):
            if log is not None and log.log_dir is job.log_dir:
                log.complete_flush(job)

    def plan_checkpoints(self, high_watermarks: Mapping[TopicPartition, int]) -> list[CheckpointJob]:
        """One job per online dir, every `log.flush.offset.checkpoint.interval.ms`.

        A log that `high_watermarks` lacks keeps the one checkpointed before."""
        self._note_high_watermarks(high_watermarks)
        return [self._checkpoint_of(directory) for directory in self._directories.online()]

    def plan_checkpoint_of(self, log: PartitionLog) -> CheckpointJob:
        """The job of the dir that the log is in."""
        return self._checkpoint_of(self._directories.of(log.log_dir))

    def plan_high_watermark_checkpoints(self, high_watermarks: Mapping[TopicPartition, int]) -> list[HighWatermarkJob]:
        """One job per online dir in which one moved, every `replica.high.watermark.checkpoint.interval.ms`."""
        before = {directory: directory.high_watermarks for directory in self._directories.online()}
        self._note_high_watermarks(high_watermarks)
        return [
            HighWatermarkJob(
                disk=self._disk,
                log_dir=directory.log_dir,
                high_watermarks=dict(directory.high_watermarks),
                order=directory.checkpoint_order,
                number=directory.checkpoint_order.next(),
            )
            for directory in self._directories.online()
            if directory.high_watermarks != before.get(directory)
        ]

    def _note_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        for directory in self._directories.online():
            logs = (log.topic_partition for log in self._logs_in(directory))
            known = {**directory.high_watermarks, **high_watermarks}
            directory.high_watermarks = {name: known[name] for name in logs if name in known}

    def checkpointed_high_watermark(self, log: PartitionLog) -> int:
        """The last one that was checkpointed, within what the log holds: where a replica starts from."""
        mark = self._directories.of(log.log_dir).high_watermarks.get(log.topic_partition, 0)
        return min(max(mark, log.log_start_offset), log.log_end_offset)

    def _checkpoint_of(self, directory: LogDirectory) -> CheckpointJob:
        logs = self._logs_in(directory)
        return CheckpointJob(
            disk=self._disk,
            log_dir=directory.log_dir,
            recovery_points={log.topic_partition: log.recovery_point for log in logs},
            # A start at a segment's beginning needs no row: the file name says it.
            log_start_offsets={
                log.topic_partition: log.log_start_offset
                for log in logs
                if log.log_start_offset > log.segment_base_offsets[0]
            },
            high_watermarks=dict(directory.high_watermarks),
            cleaner_offsets={log.topic_partition: log.cleaned_to_offset for log in logs if log.cleaned_to_offset},
            order=directory.checkpoint_order,
            number=directory.checkpoint_order.next(),
        )

    def apply_retention(self, high_watermark: Callable[[TopicPartition], int], *, now_ms: int) -> list[PendingDeletion]:
        """Drops expired segments of every log, every `log.retention.check.interval.ms`."""
        deletions = []
        for log in self._online_logs():
            mark = high_watermark(log.topic_partition)
            try:
                deletion = log.apply_retention(now_ms=now_ms, high_watermark=mark)
            except BrokerError as error:
                logger.error("retention=%s %s", log.topic_partition, error)
                continue
            if deletion is not None:
                deletions.append(deletion)
        return deletions

    # Log dirs

    def offline_log_dirs(self) -> dict[str, str]:
        """Path and reason of each dir that failed."""
        return self._directories.offline()

    def unreadable_log_dirs(self) -> list[str]:
        """Where a log may be that none of the dirs online has: those that failed, and those that are missing."""
        return self._directories.unreadable()

    def directory_ids(self) -> dict[str, uuid.UUID]:
        """Path and id of each online dir, for the broker's registration."""
        return self._directories.ids()

    def clean_shutdown_epoch(self) -> int | None:
        """The broker epoch of the last orderly stop, None unless every dir says that there was one."""
        return self._directories.clean_shutdown_epoch()

    def describe_log_dirs(self) -> list[LogDirDescription]:
        return [self._describe(directory) for directory in self._directories]

    def _describe(self, directory: LogDirectory) -> LogDirDescription:
        log_dir = directory.log_dir
        total = usable = -1
        if log_dir.failure is None:
            try:
                total, usable = self._disk.space(log_dir.path)
            except OSError as error:
                logger.error("%s", log_dir.failed(error, "describe"))
        offline = log_dir.failure is not None
        return LogDirDescription(
            path=log_dir.path,
            directory_id=directory.properties.directory_id if directory.properties else None,
            error_code=ErrorCode.KAFKA_STORAGE_ERROR if offline else ErrorCode.NONE,
            total_bytes=total,
            usable_bytes=usable,
            replicas=() if offline else tuple(map(self._on_disk, self._logs_in(directory))),
        )

    def _on_disk(self, log: PartitionLog) -> ReplicaOnDisk:
        if self._futures.get(log.topic_partition) is not log:
            return ReplicaOnDisk(log, is_future=False, offset_lag=0)
        behind = self._logs[log.topic_partition].log_end_offset - log.log_end_offset
        return ReplicaOnDisk(log, is_future=True, offset_lag=max(0, behind))

    def _online_logs(self) -> Sequence[PartitionLog]:
        return [log for log in self._logs.values() if log.log_dir.failure is None]

    def _logs_in(self, directory: LogDirectory) -> list[PartitionLog]:
        return [log for log in self.all_logs() if log.log_dir is directory.log_dir]

    # Stopping

    def close(self, *, broker_epoch: int, high_watermarks: Mapping[TopicPartition, int] = MappingProxyType({})) -> None:
        """Makes everything durable, leaves the clean-shutdown marker in each dir that managed to, unlocks all dirs.

        A log that `high_watermarks` lacks keeps the one checkpointed before. A dir that fails here is reported in the
        log and recovers at the next start."""
        self._note_high_watermarks(high_watermarks)
        for directory in self._directories:
            try:
                if directory.log_dir.failure is None:
                    self._close(directory, broker_epoch)
            except KlammError as error:
                logger.error("%s", error)
            for log in self._logs_in(directory):
                log.abandon()
        self._logs.clear()
        self._futures.clear()
        self._directories.unlock()

    def _close(self, directory: LogDirectory, broker_epoch: int) -> None:
        with ThreadPoolExecutor(_CLOSING_THREADS, thread_name_prefix="log-closing") as executor:
            for _ in executor.map(PartitionLog.close, self._logs_in(directory)):
                pass
        self._checkpoint_of(directory).run()
        try:
            write_clean_shutdown(self._disk, directory.log_dir.path, broker_epoch)
        except OSError as error:
            raise directory.log_dir.failed(error, "clean shutdown") from error
