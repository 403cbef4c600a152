"""DescribeLogDirs: what lies in which log directory, and how full they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from klamm.model import TopicPartition
from klamm.wire.v1.broker_pb2 import (
    DescribedLogDir,
    DescribedReplica,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from klamm_broker.log.log_manager import LogDirDescription, LogManager


class LogDirsRpc:
    """Handles DescribeLogDirs."""

    def __init__(self, logs: Callable[[], LogManager]) -> None:
        self._logs = logs

    async def describe_log_dirs(self, request: DescribeLogDirsRequest, context: Any) -> DescribeLogDirsResponse:
        wanted = _filter(request)
        return DescribeLogDirsResponse(
            log_dirs=[self._describe(log_dir, wanted) for log_dir in self._logs().describe_log_dirs()]
        )

    def _describe(self, log_dir: LogDirDescription, wanted: Callable[[TopicPartition], bool]) -> DescribedLogDir:
        return DescribedLogDir(
            error_code=log_dir.error_code,
            path=log_dir.path,
            total_bytes=log_dir.total_bytes,
            usable_bytes=log_dir.usable_bytes,
            replicas=[
                self._replica(topic_partition, size_bytes)
                for topic_partition, size_bytes in sorted(log_dir.replica_bytes.items())
                if wanted(topic_partition)
            ],
        )

    def _replica(self, topic_partition: TopicPartition, size_bytes: int) -> DescribedReplica:
        log = self._logs().logs[topic_partition]
        return DescribedReplica(
            topic=topic_partition.topic,
            partition=topic_partition.partition,
            size_bytes=size_bytes,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
        )


def _filter(request: DescribeLogDirsRequest) -> Callable[[TopicPartition], bool]:
    """Which replicas to name: all, or those of the topics asked for (a topic without partitions: all of it)."""
    if not request.topics:
        return lambda _: True
    wanted: Mapping[str, frozenset[int]] = {one.topic: frozenset(one.partitions) for one in request.topics}

    def is_wanted(topic_partition: TopicPartition) -> bool:
        partitions = wanted.get(topic_partition.topic)
        return partitions is not None and (not partitions or topic_partition.partition in partitions)

    return is_wanted
