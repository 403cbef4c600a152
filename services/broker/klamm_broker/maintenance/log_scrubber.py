"""Reads sealed segments at a bounded rate, and repairs damaged bytes from an in-sync replica.

`log/scrub/scrub_plan.py` chooses the next segment. `log/scrub/segment_check.py` finds the damage in it.
`log/scrub/segment_rewrite.py` decides which records may replace damaged bytes. One task does the work. On the event
loop, it chooses a segment, fetches records and puts the new segment into the log. It reads and writes on its own
thread.

A repair fetches records from the leader. If this broker is the leader, it fetches them from another in-sync replica.
The new segment is written and synced beside the old one. Before a leader changes its log, it resigns, so that another
replica leads and the cluster does not rely on this one meanwhile. If no other replica becomes leader in time, this
leader replaces the segment anyway, because damaged bytes are of no value.

Without another in-sync replica, the damage is only reported. Data is never deleted because it is damaged.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

from klamm.errors import BrokerError
from klamm.model import TopicPartition
from klamm.process import PROCESS
from klamm.records.errors import CorruptBatchError
from klamm_broker.io import metrics
from klamm_broker.io.replica_records import ReplicaUnreachable
from klamm_broker.io.throttle import Throttle, ThrottleStopped
from klamm_broker.log.cleaning.log_cleaning import CleaningSource
from klamm_broker.log.dirs.log_manager import LogManager
from klamm_broker.log.files.checkpoints import CheckpointError
from klamm_broker.log.files.storage_failure import DiskFull, LogDir, is_disk_full
from klamm_broker.log.partition.partition_log import PartitionLog
from klamm_broker.log.partition.pending_deletion import PendingDeletion
from klamm_broker.log.scrub.damage import Damage, DamageState, damage_of
from klamm_broker.log.scrub.log_scrubbing import ScrubJob
from klamm_broker.log.scrub.scrub_plan import SCRUB_FILE, LogState, ScrubMark, ScrubPlan, read_states, write_states
from klamm_broker.log.scrub.segment_check import SegmentVerdict
from klamm_broker.log.scrub.segment_rewrite import ReplicaRefused, Rewritten
from klamm_broker.log.segment.segment_files import TRANSACTION_INDEX_SUFFIX
from klamm_broker.replica.partition import Partition
from klamm_broker.replica.resignations import ReplicaKey
from klamm_server.config.broker_configs import BrokerConfig
from klamm_server.runtime.clock import Clock
from klamm_server.runtime.disk import Disk

log = logging.getLogger(__name__)
T = TypeVar("T")

FIRST_CHECK_MS = 30_000
"""The wait after a start, in milliseconds, because other parts need the disk first (Kafka's
`log.initial.task.delay.ms`)."""
CHECK_MS = 10_000
"""How often the scrubber checks which passes are due, and writes the checkpoint during a pass, in milliseconds."""
HAND_OVER_MS = 10_000
ATTEMPTS = 5
ATTEMPT_PAUSE_MS = 1_000
"""The pause between attempts, in milliseconds. After an election, other replicas need a moment until they agree with
the leader."""
REMEMBERED_MAX = 1_000
"""The most repaired or dismissed damages that are remembered."""
_REASON = "scrub"
"""The reason for which a damaged replica resigns."""


class RecordSource(Protocol):
    """Fetches records from other replicas (`ReplicaRecords`)."""

    async def fetch(
        self, broker_id: int, name: TopicPartition, offset: int, *, leader_epoch: int, from_follower: bool
    ) -> memoryview: ...


class Resigner(Protocol):
    """Asks the controller to let other replicas lead (`ResignationSender`)."""

    def resign(self, key: ReplicaKey, reason: str) -> None: ...
    def resume(self, key: ReplicaKey, reason: str) -> None: ...


class ScrubStatus(NamedTuple):
    """The state of the scrub of one replica."""

    topic_partition: TopicPartition
    mark: ScrubMark
    is_requested: bool
    """True if an operator asked for a pass that has not ended yet."""
    is_running: bool
    damages: tuple[Damage, ...]
    """The damages that are not repaired, and the last ones that were closed."""

    @property
    def is_damaged(self) -> bool:
        """True if some damage is not repaired."""
        return any(damage.state is DamageState.UNREPAIRED for damage in self.damages)


class _LogMovedOn(Exception):
    """Raised if the log has changed since the check was planned."""


class LogScrubber:
    """Scrubs the logs. The owner calls `load` after the logs were loaded, then `run` until it cancels it, then `close`.
    Event loop only."""

    def __init__(
        self,
        logs: LogManager,
        replicas: Iterable[Partition],
        config: BrokerConfig,
        *,
        records: RecordSource,
        resigner: Resigner,
        retire: Callable[[PendingDeletion], None],
        disk: Disk,
        clock: Clock,
        first_check_ms: int = FIRST_CHECK_MS,
    ) -> None:
        self._logs = logs
        self._replicas = replicas
        self._first_check_ms = first_check_ms
        self._broker_id = config.node_id
        self._records = records
        self._resigner = resigner
        self._retire = retire
        self._disk = disk
        self._clock = clock
        self._throttle = Throttle(config.log_scrub_bytes_per_second)
        self._thread = PROCESS.get().make_executor(1, "log-scrubber")
        self._wake = asyncio.Event()
        self._image_bell = asyncio.Event()
        self._stored: dict[LogDir, dict[TopicPartition, LogState]] = {}
        self._stored_ms = 0
        self._plan = ScrubPlan(config.log_scrub_interval_ms, {})
        self._open: dict[tuple[TopicPartition, int], Damage] = {}
        self._closed: deque[Damage] = deque(maxlen=REMEMBERED_MAX)
        self._running: TopicPartition | None = None

    async def run(self) -> None:
        """Scrubs all segments that are due, and checks again every `CHECK_MS` or on request."""
        await self._wait_ms(min(self._first_check_ms, max(0, self._plan.interval_ms)))
        while True:
            due = self._next()
            if due is None and self._plan.has_more:
                await asyncio.sleep(0)
                continue
            if due is None:
                await self._store()
                await self._wait_ms(CHECK_MS)
                continue
            partition, source = due
            self._running = partition.topic_partition
            try:
                await self._scrub(partition, source)
            finally:
                self._running = None
            if self._clock.monotonic_ms() - self._stored_ms >= CHECK_MS:
                await self._store()

    def reconfigure(self, config: BrokerConfig) -> None:
        """Applies the new configuration, also to the segment that is being read."""
        self._throttle.set_rate(config.log_scrub_bytes_per_second)
        self._plan.interval_ms = config.log_scrub_interval_ms
        self._wake.set()

    def on_image(self) -> None:
        """Called after newer metadata were applied to the replicas. Wakes a repair that waits for another leader."""
        self._image_bell.set()
        self._image_bell = asyncio.Event()

    def close(self) -> None:
        """Waits until the thread has ended, and stores the scrub's checkpoints."""
        self._throttle.stop()
        self._thread.shutdown(wait=True)
        for job in self._plan_stores():
            job()

    # Calls of operators

    def ask(self, is_requested: Callable[[TopicPartition], bool]) -> list[TopicPartition]:
        """Starts a pass over the selected replicas of this broker immediately. Returns their names."""
        names = [name for name in self._hosted() if is_requested(name)]
        self._plan.ask(names)
        self._wake.set()
        return names

    def status(self) -> list[ScrubStatus]:
        """Returns the state of each replica's scrub, with the damages that it found."""
        damages: dict[TopicPartition, list[Damage]] = {}
        for damage in [*self._open.values(), *self._closed]:
            damages.setdefault(damage.topic_partition, []).append(damage)
        return [
            ScrubStatus(
                name,
                self._plan.mark(name),
                self._plan.is_requested(name),
                name == self._running,
                tuple(damages.get(name, ())),
            )
            for name in sorted(self._hosted())
        ]

    # Choosing

    def _hosted(self) -> dict[TopicPartition, Partition]:
        return {replica.topic_partition: replica for replica in self._replicas if replica.log.log_dir.failure is None}

    def _next(self) -> tuple[Partition, CleaningSource] | None:
        hosted = self._hosted()
        sources: dict[TopicPartition, list[CleaningSource]] = {}

        def sources_of(name: TopicPartition) -> Sequence[CleaningSource]:
            if name not in sources:
                sources[name] = hosted[name].log.scrub.sources() if name in hosted else []
            return sources[name]

        self._plan.retain({log.topic_partition for log in self._logs.hosted.current.values()})
        due = self._plan.next(hosted, sources_of, self._clock.wall_ms())
        self._forget_gone(sources_of)
        finished_ms = self._plan.last_finished_ms
        metrics.on_scrub_check(damaged_segments=self._plan.damaged_count, last_finished_ms=finished_ms)
        return None if due is None else (hosted[due[0]], due[1])

    def _forget_gone(self, sources_of: Callable[[TopicPartition], Sequence[CleaningSource]]) -> None:
        """Forgets damages in segments that were deleted, or whose records are below the log start."""
        for name, base_offset in list(self._open):
            if base_offset not in [source.base_offset for source in sources_of(name)]:
                damage = self._open.pop((name, base_offset))
                log.info("partition=%s no longer has the damaged segment %s", name, damage.path)

    # Checking

    async def _scrub(self, partition: Partition, source: CleaningSource) -> None:
        name, partition_log = partition.topic_partition, partition.log
        try:
            job = partition_log.scrub.plan(source)
            verdict = await self._on_thread(partial(job.check, self._read, self._throttle))
            self._check_planned(partition_log, job)
            is_damaged = not verdict.is_sound and not await self._heal(partition, job, verdict)
        except _LogMovedOn:
            return
        except BrokerError as error:
            log.error("could not check partition=%s: %s", name, error)
            return
        except OSError as error:
            if partition_log.replacement.has_planned(job, [source]):
                log.error("a log directory failed: %s", partition_log.log_dir.failed(error, f"scrub of {name}"))
            return
        if verdict.is_sound:
            self._close_damage(name, source, None)
        self._plan.checked(name, source, is_damaged=is_damaged, now_ms=self._clock.wall_ms())
        if not verdict.is_sound:
            await self._store()

    def _read(self, size_bytes: int) -> None:
        metrics.SCRUB_READ.inc(size_bytes)
        self._throttle(size_bytes)

    def _check_planned(self, partition_log: PartitionLog, job: ScrubJob) -> None:
        if not partition_log.replacement.has_planned(job, [job.source]):
            raise _LogMovedOn

    def _close_damage(self, name: TopicPartition, source: CleaningSource, closed: Damage | None) -> None:
        """Removes the damage of a segment. `closed` is the damage in its final state, or None if the segment is
        sound now."""
        self._open.pop((name, source.base_offset), None)
        if closed is not None:
            self._closed.append(closed)

    # Repairing

    async def _heal(self, partition: Partition, job: ScrubJob, verdict: SegmentVerdict) -> bool:
        """Tries to repair the damage, and reports it in any case. Returns True if no damage is left."""
        name, source = partition.topic_partition, job.source
        damage = damage_of(job, verdict, now_ms=self._clock.wall_ms())
        known = self._open.get((name, source.base_offset))
        if known is None or known.lines != damage.lines:
            for line in damage.lines:
                log.error("partition=%s has a damaged segment: %s", name, line)
        self._open[name, source.base_offset] = damage
        outcome = await self._repair(partition, job, verdict)
        damage = replace(damage, state=outcome.state, text=outcome.text)
        level = logging.WARNING if outcome.state is not DamageState.UNREPAIRED else logging.ERROR
        if known is None or known.text != damage.text:
            log.log(
                level,
                "handled a damaged segment, partition=%s segment=%s state=%s: %s",
                name,
                damage.path,
                outcome.state.name,
                outcome.text,
            )
        if outcome.state is DamageState.UNREPAIRED:
            self._open[name, source.base_offset] = damage
            return False
        if outcome.state is DamageState.REPAIRED:
            metrics.SCRUB_REPAIRED.inc()
        self._close_damage(name, source, damage)
        return True

    async def _repair(self, partition: Partition, job: ScrubJob, verdict: SegmentVerdict) -> _Outcome:
        partition_log = partition.log
        if TRANSACTION_INDEX_SUFFIX in verdict.indexes:
            return _unrepaired(
                "a transaction index cannot be rebuilt from its segment alone: copy the replica again, from another"
                " broker (klamm reassign) or into another log directory"
            )
        if any(damaged.end_offset > partition.high_watermark for damaged in verdict.ranges):
            return _unrepaired("not all of the damaged range is committed yet")
        if partition_log.replacement.is_under_way:
            return _unrepaired("the log is being compacted")
        partition_log.replacement.is_under_way = True
        try:
            for attempt in range(ATTEMPTS):
                if attempt:
                    await asyncio.sleep(ATTEMPT_PAUSE_MS / 1000)
                tried = await self._repair_from_any(partition, job, verdict)
                if not tried.may_pass:
                    break
            return tried.outcome
        except CorruptBatchError as error:
            return _unrepaired(f"the second read of the segment differed from the first: {error.message}")
        except DiskFull as error:
            return _unrepaired(error.message)
        except OSError as error:
            if not is_disk_full(error):
                raise
            return _unrepaired("no space left on the disk for the new segment")
        finally:
            partition_log.replacement.is_under_way = False

    async def _repair_from_any(self, partition: Partition, job: ScrubJob, verdict: SegmentVerdict) -> _Tried:
        """Repairs a segment from the first in-sync replica that has the records."""
        refusals: list[str] = []
        # True if a later attempt may succeed. After an election, replicas do not agree with the new leader yet, and are
        # not all in sync.
        is_passing = False
        for broker_id in self._candidates(partition) if verdict.ranges else [self._broker_id]:
            try:
                rewritten = await self._rewrite(partition, job, verdict, broker_id)
            except (ReplicaRefused, ReplicaUnreachable) as error:
                refusals.append(f"broker {broker_id}: {error}")
                is_passing |= isinstance(error, ReplicaUnreachable)
                continue
            return _Tried(await self._put_in_place(partition, job, verdict, rewritten, broker_id), False)
        if refusals:
            return _Tried(_unrepaired("; ".join(refusals)), is_passing)
        is_alone = partition.image is not None and len(partition.image.replicas) == 1
        return _Tried(_unrepaired("no other replica is in sync"), not is_alone)

    def _candidates(self, partition: Partition) -> list[int]:
        """Returns the in-sync replicas on other brokers, the leader first."""
        image = partition.image
        if image is None or not partition.has_leader:
            return []
        others = [replica for replica in image.isr if replica != self._broker_id]
        return sorted(others, key=lambda other: other != image.leader)

    async def _rewrite(self, partition: Partition, job: ScrubJob, verdict: SegmentVerdict, broker_id: int) -> Rewritten:
        rewrite = await self._on_thread(partial(job.begin_rewrite, self._throttle))
        try:
            for damaged in verdict.ranges:
                wanted: int | None = await self._on_thread(partial(rewrite.begin_range, damaged))
                while wanted is not None:
                    records = await self._records.fetch(
                        broker_id,
                        job.topic_partition,
                        wanted,
                        leader_epoch=partition.leader_epoch,
                        from_follower=broker_id != partition.leader,
                    )
                    if not len(records):
                        break
                    wanted = await self._on_thread(partial(rewrite.take, records))
                await self._on_thread(rewrite.end_range)
            return await self._on_thread(rewrite.finish)
        except Exception:
            if not self._throttle.is_stopped:
                await self._on_thread(rewrite.discard)
            raise

    async def _put_in_place(
        self, partition: Partition, job: ScrubJob, verdict: SegmentVerdict, rewritten: Rewritten, broker_id: int
    ) -> _Outcome:
        """Hands over the leadership, and puts the new segment into the log."""
        partition_log, segment = partition.log, rewritten.segment
        try:
            if not rewritten.changed_bytes and not verdict.indexes:
                await self._on_thread(segment.delete)
                return _Outcome(DamageState.DISMISSED, f"broker {broker_id} has the same bytes")
            with self._resigned(partition, only_if=bool(verdict.ranges)):
                handed_over = bool(verdict.ranges) and partition.is_leader and await self._handed_over(partition)
                self._check_planned(partition_log, job)
                now_ms = self._clock.wall_ms()
                self._retire(partition_log.replacement.replace([job.source], segment, now_ms=now_ms, action="repair"))
        except _LogMovedOn:
            await self._on_thread(segment.delete)
            raise
        if not verdict.ranges:
            return _Outcome(DamageState.REPAIRED, f"rebuilt from the log: {', '.join(verdict.indexes)}")
        first = ", after it handed over the leadership" if handed_over else ""
        return _Outcome(
            DamageState.REPAIRED, f"{rewritten.changed_bytes} bytes changed, from broker {broker_id}{first}"
        )

    @contextlib.contextmanager
    def _resigned(self, partition: Partition, *, only_if: bool) -> Iterator[None]:
        if not (only_if and partition.is_leader):
            yield
            return
        key = (partition.topic_id.bytes, partition.topic_partition.partition)
        self._resigner.resign(key, _REASON)
        try:
            yield
        finally:
            self._resigner.resume(key, _REASON)

    async def _handed_over(self, partition: Partition) -> bool:
        """Waits until another broker leads. Returns False if no broker becomes the leader in time."""
        try:
            async with asyncio.timeout(HAND_OVER_MS / 1000):
                while partition.is_leader:
                    await self._image_bell.wait()
        except TimeoutError:
            log.warning(
                "partition=%s: no other broker became the leader within %d ms", partition.topic_partition, HAND_OVER_MS
            )
            return False
        return True

    # Checkpoints

    def load(self) -> None:
        """Continues from the stored checkpoints. If one is unreadable, the scrub of its log dir begins again."""
        states: dict[TopicPartition, LogState] = {}
        for log_dir in dict.fromkeys(partition_log.log_dir for partition_log in self._logs.hosted.current.values()):
            try:
                states |= read_states(self._disk, f"{log_dir.path}/{SCRUB_FILE}")
            except (CheckpointError, OSError) as error:
                log.warning(
                    "log_dir=%s has no usable scrub checkpoint, so that its scrub starts again: %s", log_dir.path, error
                )
        self._plan = ScrubPlan(self._plan.interval_ms, states)

    async def _store(self) -> None:
        self._stored_ms = self._clock.monotonic_ms()
        for job in self._plan_stores():
            await self._on_thread(job)

    def _plan_stores(self) -> list[Callable[[], None]]:
        """Returns one job for each log directory whose states have changed."""
        by_dir: dict[LogDir, dict[TopicPartition, LogState]] = {}
        for name, partition_log in self._logs.hosted.current.items():
            if partition_log.log_dir.failure is None:
                by_dir.setdefault(partition_log.log_dir, {})[name] = self._plan.state(name)
        changed = [log_dir for log_dir, states in by_dir.items() if self._stored.get(log_dir) != states]
        self._stored |= by_dir
        return [partial(self._store_in, log_dir, by_dir[log_dir]) for log_dir in changed]

    def _store_in(self, log_dir: LogDir, states: dict[TopicPartition, LogState]) -> None:
        try:
            write_states(self._disk, f"{log_dir.path}/{SCRUB_FILE}", states)
        except OSError as error:
            log.error("a log directory failed: %s", log_dir.failed(error, "scrub checkpoint"))

    # Waiting

    async def _wait_ms(self, delay_ms: int) -> None:
        """Waits for `delay_ms`, or until an operator asks for a pass."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay_ms / 1000):
                await self._wake.wait()
        self._wake.clear()

    async def _on_thread(self, job: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, job)
        except asyncio.CancelledError:
            self._throttle.stop()
            raise
        except ThrottleStopped:
            raise asyncio.CancelledError from None


class _Outcome(NamedTuple):
    """The result of a repair."""

    state: DamageState
    text: str


class _Tried(NamedTuple):
    """The result of one attempt to repair."""

    outcome: _Outcome
    may_pass: bool
    """True if the next attempt may succeed, because the obstacle may be temporary."""


def _unrepaired(text: str) -> _Outcome:
    return _Outcome(DamageState.UNREPAIRED, text)
