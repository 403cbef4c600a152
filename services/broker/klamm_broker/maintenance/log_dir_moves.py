"""Moves replicas between the log directories of this broker, while they are in use (KIP-113).

Kafka's `ReplicaAlterLogDirsManager`. `log/dirs/log_move.py` changes the files on disk, and `replica/future_replica.py`
decides which records to copy. This module reads records and waits for the quota. When the future log is equal to the
current one, it swaps the logs in one turn of the event loop. At most as many moves run at a time as there are log
directories. If a directory fails, its moves end. The replica stays where it is, or fails with its directory.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TypeVar

from klamm.errors import BrokerError, ErrorCode, KlammError
from klamm.model import TopicPartition
from klamm.process import PROCESS
from klamm_broker.io.record_reader import RecordReader
from klamm_broker.log.dirs.log_deletion import DeletionJob
from klamm_broker.log.dirs.log_manager import LogManager
from klamm_broker.log.files.storage_failure import DiskFull
from klamm_broker.log.partition.partition_log import PartitionLog
from klamm_broker.log.partition.pending_deletion import PendingDeletion
from klamm_broker.replica.fetch_reader import LocatedSlice
from klamm_broker.replica.follower_partition import NextStep
from klamm_broker.replica.future_replica import FutureReplica
from klamm_broker.replica.partition import Partition
from klamm_broker.replica.replica_manager import ReplicaManager
from klamm_server.runtime.clock import Clock
from klamm_server.runtime.faults import watch

log = logging.getLogger(__name__)
T = TypeVar("T")

PART_BYTES_MAX = 1024**2
"""The most bytes that are copied in one turn of the event loop, as many as in one message of a leader to a follower."""


class LogDirMoves:
    """Moves replicas. `alter` may be called at any time. `run` works until it is cancelled; then the owner calls
    `close`."""

    def __init__(
        self,
        logs: LogManager,
        replicas: ReplicaManager,
        records: RecordReader,
        *,
        retire: Callable[[PendingDeletion], None],
        moves_max: int,
        backoff_ms: int,
        clock: Clock,
    ) -> None:
        self._logs = logs
        self._replicas = replicas
        self._records = records
        self._retire = retire
        self._backoff_ms = backoff_ms
        self._clock = clock
        self._thread = PROCESS.get().make_executor(1, "log-dir-moves")
        self._one_at_a_time = asyncio.Lock()
        self._bell = asyncio.Event()
        self._tasks: dict[TopicPartition, asyncio.Task[None]] = {}
        self._moves_max = moves_max

    async def alter(self, name: TopicPartition, path: str) -> None:
        """Begins to copy the replica to the log directory `path`. If the replica is there already, cancels its move to
        another one.

        Raises the exception of LOG_DIR_NOT_FOUND, KafkaStorageError or ReplicaNotAvailableError."""
        async with self._one_at_a_time:
            self._logs.directories.at(path).log_dir.check_online()
            partition = self._replica(name)
            future = self._logs.hosted.futures.get(name)
            if future is not None and future.log_dir.path == path:
                return
            cancellation = self._logs.deletion.plan_of_future(name, now_ms=self._clock.wall_ms())
            if cancellation is not None:
                await self._delete(cancellation)
            creation = self._logs.moves.plan(name, path, now_ms=self._clock.wall_ms())
            if creation is None:
                return
            made = await self._on_thread(creation.run)
            self._logs.moves.complete(made)
            log.info(
                "moving a log to another directory, partition=%s from=%s to=%s", name, partition.log.log_dir.path, path
            )
            if self._replicas.get(name) is not partition:
                await self._cancel(name)  # the replica was removed during the creation
            self.wake()

    def _replica(self, name: TopicPartition) -> Partition:
        try:
            return self._replicas.hosted(name)
        except BrokerError as error:
            if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
                raise
            raise ErrorCode.REPLICA_NOT_AVAILABLE.exception(error.message) from None

    def wake(self) -> None:
        """Wakes the loop and all moves, because there may be a new move or another quota."""
        self._bell.set()
        self._bell = asyncio.Event()

    async def run(self) -> None:
        """Moves all replicas that have a future log, including future logs from before the start."""
        try:
            while True:
                bell = self._bell
                for name in self._logs.hosted.futures:
                    if len(self._tasks) < self._moves_max and name not in self._tasks and self._is_hosted(name):
                        self._begin(name)
                await bell.wait()
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def close(self) -> None:
        """Waits until the running job on the thread has ended."""
        self._thread.shutdown(wait=True)

    def _is_hosted(self, name: TopicPartition) -> bool:
        partition = self._replicas.get(name)
        return partition is not None and partition.log is self._logs.get(name) and partition.log.log_dir.failure is None

    def _begin(self, name: TopicPartition) -> None:
        def end(task: asyncio.Task[None]) -> None:
            del self._tasks[name]
            if not task.cancelled():
                self.wake()  # other moves wait for their turn

        task = asyncio.create_task(self._move(name), name=f"log-dir-move-{name}")
        self._tasks[name] = watch(task)
        task.add_done_callback(end)

    # One move

    async def _move(self, name: TopicPartition) -> None:
        current, future = self._logs.hosted.current[name], self._logs.hosted.futures[name]
        copy = FutureReplica(current, future)
        while self._goes_on(name, current, future):
            try:
                if not copy.is_caught_up:
                    await self._copy_part(name, copy, future)
                elif future.flusher.recovery_point < current.flusher.recovery_point:
                    await self._flush(future)
                else:
                    await self._swap(name, future)
                    return
            except DiskFull as error:
                log.warning("could not copy the log of partition=%s, retrying: %s", name, error)
                await self._wait_ms(self._backoff_ms)
            except KlammError as error:
                if self._goes_on(name, current, future):
                    log.error("could not move the log of partition=%s to %s: %s", name, future.log_dir.path, error)
                    await self._cancel(name)

    def _goes_on(self, name: TopicPartition, current: PartitionLog, future: PartitionLog) -> bool:
        """Returns True unless the move was cancelled, the partition was deleted, or the current directory failed."""
        partition = self._replicas.get(name)
        is_there = partition is not None and partition.log is current
        return is_there and self._logs.hosted.futures.get(name) is future and current.log_dir.failure is None

    async def _copy_part(self, name: TopicPartition, copy: FutureReplica, future: PartitionLog) -> None:
        quota = self._replicas.quotas.log_dirs
        now_ms = self._clock.monotonic_ms()
        if quota.is_exceeded(now_ms):
            await self._wait_ms(quota.free_at_ms(now_ms) - now_ms)
            return
        part = copy.next_part(min(PART_BYTES_MAX, quota.free_bytes(now_ms)))
        records: bytes | memoryview = b""
        if part.located is not None:
            # No other task runs between here and `take`, unless the records must be read from the disk.
            (records,) = await self._records.read([LocatedSlice(self._logs.hosted.current[name].log_dir, part.located)])
        partition = self._replicas.hosted(name)
        update = copy.take(part, records, high_watermark=partition.high_watermark, now_ms=self._clock.wall_ms())
        if update.truncated_from is not None:
            self._logs.checkpoints.store_recovery_points([name])
        if update.next_step is NextStep.BACK_OFF:
            await self._wait_ms(self._backoff_ms)
        quota.add(len(records), now_ms)
        if not copy.is_caught_up:
            await asyncio.sleep(0)  # other tasks run between two slices of a copy

    async def _flush(self, future: PartitionLog) -> None:
        job = future.flusher.plan()
        await self._on_thread(job.run)
        self._logs.complete_flush(job)

    async def _swap(self, name: TopicPartition, future: PartitionLog) -> None:
        job = self._logs.moves.swap(name, now_ms=self._clock.wall_ms())
        self._replicas.hosted(name).replace_log(future)
        try:
            await self._run_when_there_is_space(name, job.run)
        except BrokerError as error:
            log.error("could not complete the move of partition=%s: %s", name, error)
            return
        self._retire(self._logs.moves.complete_swap(job))
        log.info("moved a log to another directory, partition=%s to=%s", name, future.log_dir.path)

    async def _run_when_there_is_space(self, name: TopicPartition, run: Callable[[], None]) -> None:
        while True:
            try:
                return await self._on_thread(run)
            except DiskFull as error:
                log.warning(
                    "moved the log of partition=%s, but could not delete the old one, retrying: %s", name, error
                )
                await self._wait_ms(self._backoff_ms)

    async def _cancel(self, name: TopicPartition) -> None:
        job = self._logs.deletion.plan_of_future(name, now_ms=self._clock.wall_ms())
        if job is not None:
            await self._delete(job)

    async def _delete(self, job: DeletionJob) -> None:
        try:
            await self._on_thread(job.run)
        except DiskFull as error:
            log.warning("could not delete a log, retrying later: %s", error)
            self._logs.deletion.postpone(job)
            return
        except BrokerError as error:
            log.error("could not delete a log: %s", error)
            return
        for deletion in self._logs.deletion.complete(job):
            self._retire(deletion)

    async def _wait_ms(self, delay_ms: int) -> None:
        """Waits for `delay_ms`, or until `wake` is called after a change of settings or metadata."""
        bell = self._bell
        try:
            async with asyncio.timeout(delay_ms / 1000):
                await bell.wait()
        except TimeoutError:
            return

    async def _on_thread(self, job: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, job)
