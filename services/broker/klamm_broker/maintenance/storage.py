"""Connects the logs of a broker and all parts that work on them in the background.

All parts exist from the start. They have logs after `open`, which needs the id of the cluster that the log directories
belong to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any

from klamm_broker.io.record_reader import RecordReader
from klamm_broker.log.dirs.log_manager import LogManager
from klamm_broker.log.files.storage_failure import LogDir
from klamm_broker.log.log_config import LogConfig
from klamm_broker.maintenance.held_retention import HeldRetention, OffsetSource
from klamm_broker.maintenance.log_cleaner import LogCleaner
from klamm_broker.maintenance.log_dir_moves import LogDirMoves
from klamm_broker.maintenance.log_maintenance import LogMaintenance
from klamm_broker.maintenance.log_scrubber import LogScrubber, RecordSource, Resigner
from klamm_broker.replica.replica_manager import ReplicaManager
from klamm_server.config.broker_configs import BrokerConfig
from klamm_server.config.config_defs import effective_topic_configs
from klamm_server.metrics.process_metrics import watch_disk
from klamm_server.runtime.clock import Clock
from klamm_server.runtime.disk import Disk


class Storage:
    """The storage of a broker. The owner calls `open`, runs the `tasks`, and after it has cancelled them calls
    `close`."""

    def __init__(
        self,
        logs: LogManager,
        replicas: ReplicaManager,
        config: BrokerConfig,
        *,
        records: RecordReader,
        replica_records: RecordSource,
        resigner: Resigner,
        hold_offsets: OffsetSource,
        on_disk_full: Callable[[LogDir], None],
        disk: Disk,
        clock: Clock,
    ) -> None:
        self._logs = logs
        self._replicas = replicas
        self._config = config
        self._clock = clock
        self.maintenance = LogMaintenance(logs, replicas, config, clock, on_disk_full=on_disk_full)
        retire = self.maintenance.retire
        self.held_retention = HeldRetention(
            replicas, config, clock, offsets=hold_offsets, retire=retire, on_disk_full=on_disk_full
        )
        self._cleaner = LogCleaner(logs, replicas, config, retire=retire, disk=disk, clock=clock)
        self.moves = LogDirMoves(
            logs,
            replicas,
            records,
            retire=retire,
            moves_max=len(config.data_dirs),
            backoff_ms=config.replica_fetch_backoff_ms,
            clock=clock,
        )
        self.scrubber = LogScrubber(
            logs,
            replicas,
            config,
            records=replica_records,
            resigner=resigner,
            retire=retire,
            disk=disk,
            clock=clock,
        )
        self._log_dir_ids: dict[str, bytes] = {}

    async def open(self, cluster_id: str) -> None:
        """Recovers the logs. Raises LogDirError if a log directory is in use, or belongs to another cluster or
        broker."""
        for log_dir in self._config.data_dirs:
            watch_disk(log_dir)
        defaults = LogConfig.from_configs(effective_topic_configs({}, self._config.originals))
        deletions = await asyncio.to_thread(
            self._logs.load, cluster_id, lambda _: defaults, now_ms=self._clock.wall_ms()
        )
        for deletion in deletions:
            self.maintenance.retire(deletion)
        self.scrubber.load()
        self._log_dir_ids |= {path: directory_id.bytes for path, directory_id in self._logs.directories.ids().items()}

    @property
    def log_dir_ids(self) -> tuple[bytes, ...]:
        """The ids of the log directories that were usable at the start."""
        return tuple(self._log_dir_ids.values())

    def offline_log_dir_ids(self) -> Sequence[bytes]:
        """Returns the ids of the log directories that failed since the start."""
        return [self._log_dir_ids[path] for path in self._logs.directories.offline() if path in self._log_dir_ids]

    def reconfigure(self, config: BrokerConfig) -> None:
        for part in (self._logs, self.maintenance, self._cleaner, self.scrubber):
            part.reconfigure(config)

    def on_image(self) -> None:
        """Called after newer metadata were applied to the replicas."""
        self.moves.wake()
        self.scrubber.on_image()

    def tasks(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """Yields the background tasks with their names. The caller runs them until it cancels them."""
        yield "log-maintenance", self.maintenance.run()
        yield "held-retention", self.held_retention.run()
        yield "log-dir-moves", self.moves.run()
        yield "log-scrubber", self.scrubber.run()
        if self._config.log_cleaner_enable:
            yield "log-cleaner", self._cleaner.run()

    async def close(self, *, broker_epoch: int) -> None:
        """Flushes and closes all logs. Raises nothing. A log directory that fails now is recovered at the next
        start."""
        self.maintenance.close()
        self._cleaner.close()
        self.moves.close()
        self.scrubber.close()
        high_watermarks = self._replicas.high_watermarks()
        await asyncio.to_thread(self._logs.close, broker_epoch=broker_epoch, high_watermarks=high_watermarks)
