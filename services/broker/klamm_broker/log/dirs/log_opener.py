"""Opens a partition's log with the objects that all logs of a broker share. Any thread may use it."""

from __future__ import annotations

import random

from klamm.model import TopicId, TopicPartition
from klamm_broker.log.files.storage_failure import LogDir
from klamm_broker.log.log_config import LogConfig
from klamm_broker.log.partition.log_loader import LoadContext, load_partition
from klamm_broker.log.partition.partition_log import PartitionLog
from klamm_broker.log.segment.segment_pool import SegmentPool
from klamm_server.runtime.disk import Disk


class LogOpener:
    """Opens logs. `producer_ids_max` is `producer.ids.per.partition.max`."""

    def __init__(self, *, disk: Disk, pool: SegmentPool, rng: random.Random, producer_ids_max: int) -> None:
        self._disk = disk
        self._pool = pool
        self._rng = rng
        self._producer_ids_max = producer_ids_max

    def open(
        self,
        log_dir: LogDir,
        path: str,
        topic_partition: TopicPartition,
        topic_id: TopicId | None,
        config: LogConfig,
        *,
        now_ms: int,
        log_start_offset: int = 0,
        recovery_point: int = 0,
        clean_shutdown: bool = False,
    ) -> PartitionLog:
        """Opens the log in the directory `path`, or creates it. The offsets are those of the checkpoints. Raises
        OSError."""
        context = LoadContext(
            config=config,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            clean_shutdown=clean_shutdown,
            now_ms=now_ms,
            producer_ids_max=self._producer_ids_max,
        )
        return PartitionLog(
            disk=self._disk,
            log_dir=log_dir,
            directory=path,
            topic_partition=topic_partition,
            topic_id=topic_id,
            config=config,
            loaded=load_partition(self._disk, path, context, self._rng),
            pool=self._pool,
            rng=self._rng,
        )
