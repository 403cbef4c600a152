"""Compacts the logs of topics with `cleanup.policy` compact, the dirtiest first. Kafka's `LogCleaner`.

There are `log.cleaner.threads` workers. A worker chooses a log on the event loop, cleans it on a thread
(`log/log_cleaning.py`), and puts each new segment into the log on the event loop. If the log was meanwhile truncated or
deleted, or retention removed segments, the worker leaves it unchanged and checks it again later.

A log with a batch that cannot be read is uncleanable until the broker restarts. It is still served, and it grows.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple, Protocol, TypeVar

from klamm.errors import BrokerError
from klamm.model import TopicPartition
from klamm.process import PROCESS
from klamm.records.errors import CorruptBatchError
from klamm.setting import INT_MAX
from klamm_broker.io import metrics
from klamm_broker.io.throttle import Throttle, ThrottleStopped
from klamm_broker.log.cleaning.cleanable import LogToClean
from klamm_broker.log.cleaning.log_cleaning import CleaningPlan, CleaningSource, CleaningStats, LogCleaning
from klamm_broker.log.dirs.log_manager import LogManager
from klamm_broker.log.partition.partition_log import PartitionLog
from klamm_broker.log.partition.pending_deletion import PendingDeletion
from klamm_server.config.broker_configs import BrokerConfig
from klamm_server.config.topic_configs import MIB
from klamm_server.runtime.clock import Clock
from klamm_server.runtime.disk import Disk

log = logging.getLogger(__name__)
T = TypeVar("T")

_SWITCH_INTERVAL_S = 0.0005
"""The interpreter's switch interval while a cleaner thread runs, instead of Python's 5 ms, so that the event loop runs
sooner. Measured with bench/compaction.py: a produce call then takes 7.5 instead of 16 ms (p99), and the cleaning takes
a tenth longer."""


class Replica(Protocol):
    """The properties of a partition replica, leader or follower, that the cleaner needs."""

    @property
    def log(self) -> PartitionLog: ...
    @property
    def last_stable_offset(self) -> int: ...


class _LogMovedOn(Exception):
    """Raised if the log has changed since the cleaning was planned."""


class _Candidate(NamedTuple):
    """A log that should be cleaned now."""

    partition_log: PartitionLog
    to_clean: LogToClean


class LogCleaner:
    """Chooses logs and cleans them. `run` works until it is cancelled; then the owner calls `close`. Event loop
    only."""

    def __init__(
        self,
        logs: LogManager,
        replicas: Iterable[Replica],
        config: BrokerConfig,
        *,
        retire: Callable[[PendingDeletion], None],
        disk: Disk,
        clock: Clock,
    ) -> None:
        self._logs = logs
        self._replicas = replicas
        self._config = config
        self._retire = retire
        self._disk = disk
        self._clock = clock
        self._throttle = Throttle(config.log_cleaner_io_max_bytes_per_second)
        # Each worker has one job at a time, so there are no more threads than workers.
        self._threads = PROCESS.get().make_executor(INT_MAX, "log-cleaner")
        self._working: set[int] = set()
        """The numbers of the running workers."""
        self._reconfigured = asyncio.Event()
        self._dedupe_bytes = 0
        self._under_way = 0
        self._usual_switch_interval_s = 0.0
        self._uncleanable: dict[TopicPartition, PartitionLog] = {}

    @property
    def worker_count(self) -> int:
        """The number of running workers."""
        return len(self._working)

    @property
    def dedupe_buffer_bytes(self) -> int:
        """The bytes of dedupe buffers that running cleanings hold."""
        return self._dedupe_bytes

    async def run(self) -> None:
        """Cleans all logs that are due, and checks again every `log.cleaner.backoff.ms`."""
        async with asyncio.TaskGroup() as workers:
            while True:
                for number in range(self._config.log_cleaner_threads):
                    if number not in self._working:
                        self._working.add(number)
                        workers.create_task(self._work(number))
                await self._reconfigured.wait()

    def reconfigure(self, config: BrokerConfig) -> None:
        """Applies the new configuration. A running cleaning changes only its rate."""
        self._config = config
        self._throttle.set_rate(config.log_cleaner_io_max_bytes_per_second)
        self._reconfigured.set()
        self._reconfigured = asyncio.Event()

    def close(self) -> None:
        """Stops the cleaner and waits until its threads have ended."""
        self._throttle.stop()
        self._threads.shutdown(wait=True)

    async def _work(self, number: int) -> None:
        """Cleans logs until the settings ask for no more than `number` workers."""
        while number < self._config.log_cleaner_threads:
            await self._roll_overdue()
            candidate = self._dirtiest()
            if candidate is None or not await self._clean(candidate):
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._config.log_cleaner_backoff_ms / 1000):
                        await self._reconfigured.wait()
        self._working.discard(number)

    async def _roll_overdue(self) -> None:
        """Rolls active segments that are older than `max.compaction.lag.ms`, because active segments cannot be cleaned.
        So logs without appends keep the maximum lag, too."""
        for replica in list(self._replicas):
            try:
                if replica.log.compaction.roll_overdue(now_ms=self._clock.wall_ms()):
                    # Each roll creates files, so let other tasks run in between.
                    await asyncio.sleep(0)
            except BrokerError as error:
                log.error("could not roll an overdue segment: %s", error)

    # Choosing

    def _dirtiest(self) -> _Candidate | None:
        now_ms = self._clock.wall_ms()
        due: list[_Candidate] = []
        dirty_ratios, delays_ms, uncleanable_bytes = [0.0], [0], 0
        uncleanable: dict[TopicPartition, PartitionLog] = {}
        for replica in self._replicas:
            partition_log, topic_partition = replica.log, replica.log.topic_partition
            if not partition_log.config.is_compacted or partition_log.log_dir.failure is not None:
                continue
            to_clean = partition_log.compaction.to_clean(last_stable_offset=replica.last_stable_offset, now_ms=now_ms)
            if self._uncleanable.get(topic_partition) is partition_log:
                uncleanable[topic_partition] = partition_log
                uncleanable_bytes += to_clean.cleanable_bytes + to_clean.uncleanable_bytes
                continue
            delay_ms = self._delay_ms(partition_log, to_clean, now_ms)
            dirty_ratios.append(to_clean.cleanable_ratio)
            delays_ms.append(delay_ms)
            if partition_log.replacement.is_under_way or not to_clean.cleanable_bytes:
                continue
            if delay_ms > 0 or to_clean.cleanable_ratio > partition_log.config.min_cleanable_dirty_ratio:
                due.append(_Candidate(partition_log, to_clean))
        self._uncleanable = uncleanable
        metrics.on_cleaner_check(
            max_dirty_ratio=max(dirty_ratios),
            max_delay_ms=max(delays_ms),
            uncleanable_partitions=len(uncleanable),
            uncleanable_bytes=uncleanable_bytes,
        )
        return max(due, key=lambda candidate: candidate.to_clean.cleanable_ratio, default=None)

    def _delay_ms(self, partition_log: PartitionLog, to_clean: LogToClean, now_ms: int) -> int:
        try:
            return partition_log.compaction.delay_ms(to_clean, now_ms=now_ms)
        except BrokerError as error:
            log.error("could not read when a log is due for compaction: %s", error)
            return 0

    # Cleaning

    async def _clean(self, candidate: _Candidate) -> bool:
        """Cleans the log. Returns True if it is cleaner now. Otherwise the broker's log has the reason."""
        partition_log, to_clean = candidate
        topic_partition = partition_log.topic_partition
        started_ms = self._clock.monotonic_ms()
        try:
            plan = partition_log.compaction.plan(to_clean)
            with self._rewriting(partition_log):
                stats = await self._clean_segments(partition_log, plan)
        except _LogMovedOn:
            log.info("stopped a compaction because its log changed, log=%s", topic_partition)
        except CorruptBatchError as error:
            if partition_log.replacement.has_planned(plan, plan.sources):
                self._uncleanable[topic_partition] = partition_log
                log.error("log=%s is uncleanable until the broker restarts: %s", topic_partition, error)
        except BrokerError as error:
            log.error("could not compact log=%s: %s", topic_partition, error)
        except OSError as error:
            if partition_log.replacement.has_planned(plan, plan.sources):
                log.error(
                    "a log directory failed: %s",
                    partition_log.log_dir.failed(error, f"compaction of {topic_partition}"),
                )
        else:
            self._report(topic_partition, stats, self._clock.monotonic_ms() - started_ms)
            return True
        return False

    @contextmanager
    def _rewriting(self, partition_log: PartitionLog) -> Iterator[None]:
        """Marks the log as being rewritten, so that no other task replaces its segments. Shortens the interpreter's
        switch interval."""
        if not self._under_way:
            self._usual_switch_interval_s = sys.getswitchinterval()
            sys.setswitchinterval(min(_SWITCH_INTERVAL_S, self._usual_switch_interval_s))
        self._under_way += 1
        partition_log.replacement.is_under_way = True
        try:
            yield
        finally:
            partition_log.replacement.is_under_way = False
            self._under_way -= 1
            if not self._under_way:
                sys.setswitchinterval(self._usual_switch_interval_s)

    async def _clean_segments(self, partition_log: PartitionLog, plan: CleaningPlan) -> CleaningStats:
        config = self._config
        dedupe_bytes = self._dedupe_share_bytes()
        cleaning = LogCleaning(
            self._disk,
            plan,
            dedupe_buffer_bytes=int(dedupe_bytes * config.log_cleaner_io_buffer_load_factor),
            io_buffer_bytes=config.log_cleaner_io_buffer_size // config.log_cleaner_threads // 2,
            producer_id_expiration_ms=config.producer_id_expiration_ms,
            pace=self._throttle,
            now_ms=self._clock.wall_ms(),
        )
        self._dedupe_bytes += dedupe_bytes
        try:
            await self._on_thread(cleaning.build_offset_map)
            # Store the checkpoints first. After a crash, a scan would learn the leader epochs only from batches that
            # compaction kept.
            await self._on_thread(self._logs.checkpoints.plan_of(partition_log.log_dir).run)
            for group in cleaning.groups():
                await self._clean_group(partition_log, plan, cleaning, group)
            await self._on_thread(cleaning.sync_directory)
            if not partition_log.replacement.has_planned(plan, ()):
                raise _LogMovedOn
            partition_log.compaction.cleaned_to_offset = cleaning.end_offset
            await self._on_thread(self._logs.checkpoints.plan_of(partition_log.log_dir).run)
            return cleaning.stats
        finally:
            self._dedupe_bytes -= dedupe_bytes
            if not self._throttle.is_stopped:
                await self._on_thread(cleaning.close)

    def _dedupe_share_bytes(self) -> int:
        """Returns the dedupe buffer of one cleaning: an equal share, or what running cleanings have left if that is
        less."""
        all_bytes = self._config.log_cleaner_dedupe_buffer_size
        return max(MIB, min(all_bytes // self._config.log_cleaner_threads, all_bytes - self._dedupe_bytes))

    async def _clean_group(
        self, partition_log: PartitionLog, plan: CleaningPlan, cleaning: LogCleaning, group: Sequence[CleaningSource]
    ) -> None:
        cleaned = await self._on_thread(lambda: cleaning.clean(group))
        if not partition_log.replacement.has_planned(plan, group):
            if cleaned is not None:
                await self._on_thread(cleaned.delete)
            raise _LogMovedOn
        if cleaned is not None:
            self._retire(partition_log.replacement.replace(group, cleaned, now_ms=self._clock.wall_ms()))

    def _report(self, topic_partition: TopicPartition, stats: CleaningStats, took_ms: int) -> None:
        metrics.on_cleaned(stats, took_ms)
        log.info(
            "compacted a log, log=%s keys=%d bytes=%d of %d records=%d of %d buffer=%.0f%% took_ms=%d",
            topic_partition,
            stats.key_count,
            stats.written_bytes,
            stats.read_bytes,
            stats.written_records,
            stats.read_records,
            100 * stats.buffer_utilization,
            took_ms,
        )

    async def _on_thread(self, job: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, job)
        except asyncio.CancelledError:
            # The broker stops, so the job on the thread must end. The cancelled task may need the thread for one more
            # job.
            self._throttle.stop()
            raise
        except ThrottleStopped:
            raise asyncio.CancelledError from None
