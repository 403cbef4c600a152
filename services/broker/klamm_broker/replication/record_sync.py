"""Syncs the records that `flush.messages` wants on disk before they are acknowledged.

Syncs run on threads, beside the event loop. At most one runs for each partition. Appends that come meanwhile share the
next one (group commit).
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable
from typing import Final

from klamm.errors import BrokerError
from klamm.model import TopicPartition
from klamm.process import PROCESS
from klamm_broker.log.dirs.log_manager import LogManager
from klamm_broker.log.files.storage_failure import DiskFull, LogDir
from klamm_broker.log.partition.log_flush import FlushJob
from klamm_broker.replica.partition import Partition

log = logging.getLogger(__name__)

SYNC_THREADS: Final = 8
"""The partitions that are synced at the same time. Further partitions queue."""


class RecordSyncs:
    """Runs the syncs. Event loop only."""

    def __init__(
        self,
        logs: LogManager,
        *,
        on_synced: Callable[[Partition], None],
        on_disk_full: Callable[[LogDir], None],
    ) -> None:
        """Calls `on_synced` after each sync, also after one that failed with its log directory."""
        self._logs = logs
        self._on_synced = on_synced
        self._on_disk_full = on_disk_full
        self._threads = PROCESS.get().make_executor(SYNC_THREADS, "record-sync")
        self._running: set[TopicPartition] = set()
        self._is_closed = False

    def begin(self, partition: Partition) -> None:
        """Begins a sync of the partition, unless one runs. The end of that one looks at the partition again."""
        if partition.topic_partition in self._running or self._is_closed:
            return
        try:
            job = partition.log.flusher.plan(only_records=True)
        except BrokerError as error:
            self._note(partition, error)
            return
        self._running.add(partition.topic_partition)
        running = asyncio.get_running_loop().run_in_executor(self._threads, job.run)
        running.add_done_callback(functools.partial(self._end, partition, job))

    def close(self) -> None:
        """Waits until the running syncs have ended."""
        self._is_closed = True
        self._threads.shutdown(wait=True)

    def _end(self, partition: Partition, job: FlushJob, done: asyncio.Future[None]) -> None:
        self._running.discard(partition.topic_partition)
        if done.cancelled():
            return
        error = done.exception()
        if isinstance(error, BrokerError):
            self._note(partition, error)
        elif error is not None:
            raise error
        else:
            self._logs.complete_flush(job)
            self._on_synced(partition)
            if partition.log.flusher.owes_sync:
                self.begin(partition)

    def _note(self, partition: Partition, error: BrokerError) -> None:
        """Reports an error. The next append or the regular flush tries again, unless the log directory failed."""
        if isinstance(error, DiskFull):
            self._on_disk_full(error.log_dir)
        else:
            log.error("could not sync records that wait for it: %s", error)
            self._on_synced(partition)
