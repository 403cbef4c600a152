"""Starts several log managers over the same log directories, and makes logs in them."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from pathlib import Path

from klamm.model import TopicId, TopicPartition
from klamm_broker.log.dirs.log_manager import LogManager, LogManagerConfig
from klamm_broker.log.log_config import LogConfig
from klamm_broker.log.partition.partition_log import PartitionLog
from klamm_server.runtime.disk import Disk
from tests.support.log_steps import create_log

NOW = 1_000
CONFIG = LogConfig(segment_bytes=1024, index_interval_bytes=100, file_delete_delay_ms=60)
TOPIC_ID = TopicId(uuid.UUID(int=77))


class ManagerHarness:
    """Starts log managers over the same directories. `crash` drops one of them without writing anything to the disk."""

    def __init__(self, root: Path, disk: Disk) -> None:
        self.dirs = tuple(str(root / name) for name in ("a", "b", "c"))
        self.disk = disk
        self.rng = random.Random(5)
        self.running: list[LogManager] = []
        self.log_config = CONFIG

    def start(self, *, cluster_id: str = "one", lost: frozenset[uuid.UUID] = frozenset()) -> LogManager:
        config = LogManagerConfig(log_dirs=self.dirs, node_id=1, open_segments_max=4, lost_directory_ids=lost)
        manager = LogManager(config, self.disk, self.rng)
        self.running.append(manager)
        self.deletions = manager.load(cluster_id, lambda topic: self.log_config, now_ms=NOW)
        return manager

    def crash(self, manager: LogManager) -> None:
        for log in manager.hosted.current.values():
            log.abandon()
        manager.directories.unlock()
        self.running.remove(manager)


def create(manager: LogManager, partition: int, topic: str = "orders") -> PartitionLog:
    return create_log(manager, TopicPartition(topic, partition), TOPIC_ID, CONFIG, now_ms=NOW)


def fill(log: PartitionLog, make_batch: Callable[[int], bytes], count: int = 10) -> None:
    for _ in range(count):
        log.append_as_leader(make_batch(2), leader_epoch=1, now_ms=NOW)
