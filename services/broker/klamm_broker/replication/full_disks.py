"""Resigns the replicas of a full log directory until there is space again, so that other replicas lead.

A directory is full from the first write that fails for lack of space. It has space again when `enough_bytes` of its
file system are free and a part of them can be allocated. This is much more than one append needs, so that its replicas
do not resign and resume repeatedly. Then its replicas join the in-sync sets again, and the balance of preferred leaders
returns the leadership.

If no other replica can lead, the leader still tries to append, and undoes a write that fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable
from dataclasses import dataclass

from klamm_broker.log.files.storage_failure import LogDir, is_disk_full
from klamm_broker.replica.replica_manager import ReplicaManager
from klamm_broker.replication.resignation_sender import ResignationSender
from klamm_server.runtime.clock import Clock
from klamm_server.runtime.disk import Disk, DiskSpace

log = logging.getLogger(__name__)

CHECK_MS = 1_000
"""The time between checks of a full directory, in milliseconds."""
REPORT_MS = 60_000
"""The time between log lines that a directory is still full, in milliseconds."""
ENOUGH_PERCENT = 1
"""The percentage of a file system that must be free before its log directory no longer counts as full."""
ENOUGH_MAX_BYTES = 1 << 30
"""More free space than this is enough on every file system."""
ALLOCATED_MAX_BYTES = 16 << 20
"""This many of the free bytes are allocated for a test that the space is usable."""


def enough_bytes(total_bytes: int) -> int:
    """Returns the free bytes that a file system of that size needs before its log directory no longer counts as
    full."""
    return min(total_bytes * ENOUGH_PERCENT // 100, ENOUGH_MAX_BYTES)


@dataclass(slots=True)
class _Full:
    since_ms: int
    told_ms: int


class FullDisks:
    """Knows the full log directories. `on_full` may be called at any time. `run` checks them for space until it is
    cancelled."""

    def __init__(self, disk: Disk, replicas: ReplicaManager, resignations: ResignationSender, clock: Clock) -> None:
        self._disk = disk
        self._replicas = replicas
        self._resignations = resignations
        self._clock = clock
        self._full: dict[LogDir, _Full] = {}
        self._is_any = asyncio.Event()

    def __len__(self) -> int:
        """Returns the number of full log directories."""
        return len(self._full)

    def on_full(self, log_dir: LogDir) -> None:
        """Resigns the replicas of a directory where a write found no space. Repeated calls have no effect."""
        if log_dir.is_full:
            return
        now_ms = self._clock.monotonic_ms()
        self._full[log_dir] = _Full(now_ms, now_ms)
        log_dir.is_full = True
        self._resign_replicas(log_dir)
        log.error(
            "log_dir=%s is full: its %d replicas accept no records; other in-sync replicas become leaders and continue"
            " without them (the disk has no space, or the process has too many open files)",
            log_dir.path,
            len(self._resignations.resigned_for(log_dir)),
        )
        self._is_any.set()

    async def run(self, log_dirs: Iterable[LogDir]) -> None:
        """Checks all log directories once, and then full directories regularly, until it is cancelled."""
        await self.look_first(log_dirs)
        while True:
            await self._is_any.wait()
            await asyncio.sleep(CHECK_MS / 1000)
            await self.look()

    async def look_first(self, log_dirs: Iterable[LogDir]) -> None:
        """Checks `log_dirs` for space, because after a restart no write may have failed there yet."""
        for log_dir in log_dirs:
            if not await asyncio.to_thread(self._can_allocate, log_dir):
                self.on_full(log_dir)

    async def look(self) -> None:
        """Checks the full directories, and resumes the replicas of those with space."""
        for log_dir in list(self._full):
            await self._look_at(log_dir)
        if not self._full:
            self._is_any.clear()

    async def _look_at(self, log_dir: LogDir) -> None:
        if log_dir.failure is not None:
            self._forget(log_dir)  # its replicas are offline now, which another part reports
            return
        space = await asyncio.to_thread(self._space, log_dir)
        full, now_ms = self._full[log_dir], self._clock.monotonic_ms()
        if space is not None and await asyncio.to_thread(self._can_allocate, log_dir):
            log.warning(
                "log_dir=%s has space again after_s=%d usable_bytes=%d",
                log_dir.path,
                (now_ms - full.since_ms) // 1000,
                space.usable_bytes,
            )
            self._forget(log_dir)
            return
        self._resign_replicas(log_dir)
        if now_ms - full.told_ms >= REPORT_MS:
            full.told_ms = now_ms
            log.error(
                "log_dir=%s is still full after_s=%d replicas=%d",
                log_dir.path,
                (now_ms - full.since_ms) // 1000,
                len(self._resignations.resigned_for(log_dir)),
            )

    def _resign_replicas(self, log_dir: LogDir) -> None:
        """Resigns every replica in the directory. Resumes replicas that were moved to another directory."""
        before = set(self._resignations.resigned_for(log_dir))
        there = {
            (partition.topic_id.bytes, partition.topic_partition.partition)
            for partition in self._replicas
            if partition.log.log_dir is log_dir
        }
        for key in there - before:
            self._resignations.resign(key, log_dir)
        for key in before - there:
            self._resignations.resume(key, log_dir)

    def _forget(self, log_dir: LogDir) -> None:
        del self._full[log_dir]
        log_dir.is_full = False
        for key in self._resignations.resigned_for(log_dir):
            self._resignations.resume(key, log_dir)

    def _space(self, log_dir: LogDir) -> DiskSpace | None:
        """Returns the space of the directory's file system if it is enough, otherwise None. Blocks."""
        with contextlib.suppress(OSError):
            space = self._disk.space(log_dir.path)
            if space.usable_bytes >= enough_bytes(space.total_bytes):
                return space
        return None

    def _can_allocate(self, log_dir: LogDir) -> bool:
        """Returns True if the directory's disk can allocate space. Blocks."""
        try:
            enough = enough_bytes(self._disk.space(log_dir.path).total_bytes)
            self._disk.allocate(log_dir.path, min(enough, ALLOCATED_MAX_BYTES))
        except OSError as error:
            return not is_disk_full(error)  # writes will report any other error
        return True
