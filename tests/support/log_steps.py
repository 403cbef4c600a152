"""The operations that brokers carry out on a log in several steps. Here the steps follow each other, for tests that
need no event loop."""

from __future__ import annotations

import random
from pathlib import Path

from klamm.model import TopicId, TopicPartition
from klamm_broker.log.dirs.log_creation import NewLog
from klamm_broker.log.dirs.log_manager import LogManager, LogManagerConfig
from klamm_broker.log.log_config import LogConfig
from klamm_broker.log.partition.partition_log import PartitionLog
from klamm_broker.log.partition.pending_deletion import PendingDeletion
from klamm_server.runtime.disk import Disk


def open_logs(*log_dirs: Path | str, node_id: int = 1, disk: Disk | None = None) -> LogManager:
    """Loads the logs of the directories, which may be new and empty."""
    config = LogManagerConfig(log_dirs=tuple(map(str, log_dirs)), node_id=node_id)
    manager = LogManager(config, disk or Disk(), random.Random(0))
    assert not manager.load("c", lambda _: LogConfig(), now_ms=0)
    return manager


def create_log(
    manager: LogManager, topic_partition: TopicPartition, topic_id: TopicId, config: LogConfig, *, now_ms: int = 0
) -> PartitionLog:
    """Creates a log. Raises the BrokerError that prevented it."""
    new = NewLog(topic_partition=topic_partition, topic_id=topic_id, config=config)
    jobs, failures = manager.creation.plan([new], now_ms=now_ms)
    for job in jobs:
        failures |= manager.creation.complete(job, job.run())
    for error in failures.values():
        raise error
    return manager.hosted.current[topic_partition]


def delete_log(manager: LogManager, topic_partition: TopicPartition, *, now_ms: int) -> PendingDeletion:
    """Deletes a log. Raises LogDirFailure or DiskFull."""
    (job,) = manager.deletion.plan([topic_partition], now_ms=now_ms)
    job.run()
    (deletion,) = manager.deletion.complete(job)
    return deletion


def check_sound(log: PartitionLog) -> None:
    """Asserts that a scrub finds no damage in the segments that the log wrote."""
    for source in log.scrub.sources():
        verdict = log.scrub.plan(source).check(lambda _: None, lambda _: None)
        assert verdict.is_sound, (source, verdict)
