"""Runs the regular background work on logs: flushes, retention, checkpoints and the removal of files.

Kafka's schedules in `LogManager`. One task plans on the event loop, and one disk thread runs the slow part, one job at
a time. The task also notices failed log directories: their partitions go offline, and if no directory is left, the
process stops.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from klamm.errors import BrokerError
from klamm.model import TopicPartition
from klamm.process import PROCESS
from klamm_broker.log.dirs.log_manager import LogManager
from klamm_broker.log.files.storage_failure import DiskFull, LogDir
from klamm_broker.log.partition.partition_log import PartitionLog
from klamm_broker.log.partition.pending_deletion import PendingDeletion
from klamm_broker.replica.replica_manager import ReplicaManager
from klamm_server.config.broker_configs import BrokerConfig
from klamm_server.runtime.clock import Clock
from klamm_server.runtime.faults import fatal

log = logging.getLogger(__name__)

WORST_FLUSH_CHECK_MS = 1_000
"""Closed segments are flushed at least this often, whatever `log.flush.scheduler.interval.ms` is. Segments before the
recovery point need not be scanned after a crash."""


@dataclass(slots=True)
class _Chore:
    """A task that runs every `interval_ms`."""

    run: Callable[[], Awaitable[None]]
    interval_ms: int
    due_ms: int = 0


class LogMaintenance:
    """Runs the chores. `run` works until it is cancelled; then the owner calls `close`."""

    def __init__(
        self,
        logs: LogManager,
        replicas: ReplicaManager,
        config: BrokerConfig,
        clock: Clock,
        *,
        on_disk_full: Callable[[LogDir], None],
    ) -> None:
        self._logs = logs
        self._replicas = replicas
        self._clock = clock
        self._on_disk_full = on_disk_full
        self._thread = PROCESS.get().make_executor(1, "log-maintenance")
        self._producer_id_expiration_ms = config.producer_id_expiration_ms
        self._deletions: list[tuple[int, int, PendingDeletion]] = []
        self._deletion_count = 0
        self._wake = asyncio.Event()
        self._chores = [
            _Chore(run, interval_ms)
            for run, interval_ms in (
                (self._flush, min(config.log_flush_scheduler_interval_ms, WORST_FLUSH_CHECK_MS)),
                (self._retain, config.log_retention_check_interval_ms),
                (self._checkpoint, config.log_flush_offset_checkpoint_interval_ms),
                (self._checkpoint_high_watermarks, config.replica_high_watermark_checkpoint_interval_ms),
            )
        ]

    def reconfigure(self, config: BrokerConfig) -> None:
        """Sets `producer.id.expiration.ms` for the next check of retention."""
        self._producer_id_expiration_ms = config.producer_id_expiration_ms

    def retire(self, deletion: PendingDeletion) -> None:
        """Schedules the removal of the files."""
        self._deletion_count += 1
        heapq.heappush(self._deletions, (deletion.due_ms, self._deletion_count, deletion))
        self._wake.set()

    async def run(self) -> None:
        """Runs every chore when it is due, one after another."""
        for chore in self._chores:
            chore.due_ms = self._clock.monotonic_ms() + chore.interval_ms
        while True:
            for chore in self._chores:
                now_ms = self._clock.monotonic_ms()
                if chore.due_ms <= now_ms:
                    await chore.run()
                    chore.due_ms = now_ms + chore.interval_ms
            await self._remove_due_files()
            self._notice_offline_dirs()
            await self._sleep()

    def close(self) -> None:
        """Waits until the running job has ended."""
        self._thread.shutdown(wait=True)

    async def _sleep(self) -> None:
        wait_ms = min(chore.due_ms for chore in self._chores) - self._clock.monotonic_ms()
        if self._deletions:
            wait_ms = min(wait_ms, self._deletions[0][0] - self._clock.wall_ms())
        try:
            async with asyncio.timeout(max(0, wait_ms) / 1000):
                await self._wake.wait()
        except TimeoutError:
            return
        self._wake.clear()

    async def _on_thread(self, job: Callable[[], None]) -> bool:
        """Runs a job on the disk thread. Returns False if the disk failed."""
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, job)
        except BrokerError as error:
            self._note(error)
            return False
        return True

    def _note(self, error: BrokerError) -> None:
        """Reports an error. The next turn tries the failed work again. A full disk is reported to its own observer."""
        if isinstance(error, DiskFull):
            self._on_disk_full(error.log_dir)
        else:
            log.error("maintenance of the logs failed: %s", error)

    # The chores

    async def _flush(self) -> None:
        for partition_log in self._logs.hosted.all():
            if partition_log.log_dir.failure is None and partition_log.flusher.is_due(self._clock.wall_ms()):
                await self._flush_one(partition_log)

    async def _flush_one(self, partition_log: PartitionLog) -> None:
        try:
            job = partition_log.flusher.plan()
        except BrokerError as error:
            self._note(error)
            return
        if await self._on_thread(job.run):
            owed = partition_log.flusher.owes_sync
            self._logs.complete_flush(job)
            partition = self._replicas.get(job.topic_partition)
            if owed and partition is not None:
                self._replicas.on_synced(partition)

    async def _retain(self) -> None:
        oldest_ms = self._clock.wall_ms() - self._producer_id_expiration_ms
        for partition_log in self._logs.hosted.current.values():
            partition_log.producers.expire(older_than_ms=oldest_ms)
        try:
            deletions = self._logs.apply_retention(self._high_watermark, now_ms=self._clock.wall_ms())
        except BrokerError as error:
            self._note(error)
            return
        for topic_partition, deletion in deletions.items():
            self.retire(deletion)
            partition = self._replicas.get(topic_partition)
            if partition is not None:
                self._replicas.on_log_start_moved(partition)

    def _high_watermark(self, topic_partition: TopicPartition) -> int:
        """Returns the replica's high watermark, or 0 if the replica is not known yet, because then no record is known
        to be replicated."""
        partition = self._replicas.get(topic_partition)
        return 0 if partition is None else partition.high_watermark

    async def _checkpoint(self) -> None:
        for job in self._logs.checkpoints.plan(self._replicas.high_watermarks()):
            await self._on_thread(job.run)

    async def _checkpoint_high_watermarks(self) -> None:
        for job in self._logs.checkpoints.plan_high_watermarks(self._replicas.high_watermarks()):
            await self._on_thread(job.run)

    async def _remove_due_files(self) -> None:
        while self._deletions and self._deletions[0][0] <= self._clock.wall_ms():
            _, _, deletion = heapq.heappop(self._deletions)
            await self._on_thread(lambda deletion=deletion: self._logs.deletion.remove_files(deletion))  # type: ignore[misc]

    def _notice_offline_dirs(self) -> None:
        offline = self._logs.directories.offline()
        if not offline:
            return
        for partition in list(self._replicas):
            log_dir = partition.log.log_dir
            if log_dir.failure is not None:
                log.error("partition=%s is offline: %s", partition.topic_partition, log_dir.failure)
                self._replicas.take_offline(partition.topic_partition, partition.topic_id, log_dir.failure)
        if not self._logs.directories.ids():
            fatal(f"every log dir is offline: {offline}")
