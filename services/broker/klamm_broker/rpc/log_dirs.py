"""DescribeLogDirs and AlterReplicaLogDirs: what lies in which log directory, how full they are, what moves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from klamm.errors import BrokerError
from klamm.model import TopicPartition
from klamm.wire.v1.broker_pb2 import (
    AlteredReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    DescribedLogDir,
    DescribedReplica,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    ReplicaLogDir,
)
from klamm_broker import metrics
from klamm_broker.log.log_manager import LogDirDescription, LogManager, ReplicaOnDisk
from klamm_broker.log_dir_moves import LogDirMoves
from klamm_broker.rpc.topic_filter import topic_filter


class LogDirsRpc:
    """Handles DescribeLogDirs and AlterReplicaLogDirs."""

    def __init__(self, logs: Callable[[], LogManager], moves: Callable[[], LogDirMoves]) -> None:
        self._logs = logs
        self._moves = moves

    async def describe_log_dirs(self, request: DescribeLogDirsRequest, context: Any) -> DescribeLogDirsResponse:
        wanted = topic_filter(request.topics)
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
                _replica(replica)
                for replica in sorted(log_dir.replicas, key=lambda one: one.log.topic_partition)
                if wanted(replica.log.topic_partition)
            ],
        )

    async def alter_replica_log_dirs(
        self, request: AlterReplicaLogDirsRequest, context: Any
    ) -> AlterReplicaLogDirsResponse:
        return AlterReplicaLogDirsResponse(results=[await self._alter(one) for one in request.replicas])

    async def _alter(self, wanted: ReplicaLogDir) -> AlteredReplicaLogDir:
        answer = AlteredReplicaLogDir(topic=wanted.topic, partition=wanted.partition)
        try:
            await self._moves().alter(TopicPartition(wanted.topic, wanted.partition), wanted.path)
        except BrokerError as error:
            metrics.on_error("alter_replica_log_dirs", error.code)
            answer.error_code, answer.error_message = error.code, error.message
        return answer


def _replica(replica: ReplicaOnDisk) -> DescribedReplica:
    log = replica.log
    return DescribedReplica(
        topic=log.topic_partition.topic,
        partition=log.topic_partition.partition,
        size_bytes=log.size_bytes,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        is_future=replica.is_future,
        offset_lag=replica.offset_lag,
    )
