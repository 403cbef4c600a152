"""What brokers do with a log in several steps, one after the other, for tests that need no event loop."""

from __future__ import annotations

from klamm.model import TopicId, TopicPartition
from klamm_broker.log.log_config import LogConfig
from klamm_broker.log.log_creation import NewLog
from klamm_broker.log.log_manager import LogManager
from klamm_broker.log.partition_log import PartitionLog, PendingDeletion


def create_log(
    manager: LogManager, topic_partition: TopicPartition, topic_id: TopicId, config: LogConfig, *, now_ms: int = 0
) -> PartitionLog:
    """Raises the BrokerError that kept it from being made."""
    new = NewLog(topic_partition=topic_partition, topic_id=topic_id, config=config)
    jobs, failures = manager.plan_creation([new], now_ms=now_ms)
    for job in jobs:
        failures |= manager.complete_creation(job, job.run())
    for error in failures.values():
        raise error
    return manager.logs[topic_partition]


def delete_log(manager: LogManager, topic_partition: TopicPartition, *, now_ms: int) -> PendingDeletion:
    """Raises LogDirFailure or DiskFull."""
    (job,) = manager.plan_deletion([topic_partition], now_ms=now_ms)
    job.run()
    (deletion,) = manager.complete_deletion(job)
    return deletion


def check_sound(log: PartitionLog) -> None:
    """Asserts that a scrub finds nothing damaged in what the log itself wrote."""
    for source in log.scrub_sources():
        verdict = log.plan_scrub(source).check(lambda _: None, lambda _: None)
        assert verdict.is_sound, (source, verdict)
