"""DescribeLogDirs and AlterReplicaLogDirs (KIP-113): the replicas in this broker's log directories, and their moves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from klamm.errors import ErrorCode
from klamm_broker.handlers.log_dirs import DescribedReplica, LogDirsHandler, ReplicaMove, StartedMove
from klamm_broker.kafka.api import ApiKey, Versions, api
from klamm_broker.kafka.codec.fields import Fields
from klamm_broker.kafka.cold.groups import by_topic
from klamm_broker.kafka.requests import Request


def _not_described(_body: Any) -> Fields:
    return {"error_code": ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "results": []}


def _not_altered(body: Any) -> Fields:
    denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return _answered([StartedMove(move.topic, move.partition, denied) for move in _moves(body)])


@api(
    ApiKey.DESCRIBE_LOG_DIRS,
    Versions(1, 5, flexible=2),
    rights_of="Broker/DescribeLogDirs",
    refused=_not_described,
    is_whole=True,
)
async def describe_log_dirs(request: Request, body: Any, handler: LogDirsHandler) -> Fields:
    """Describes the log directories. Without topics, the answer has all partitions in them."""
    named = {topic.topic: topic.partitions for topic in body.topics or ()}
    partitions = {(topic.topic, number) for topic in body.topics or () for number in topic.partitions}
    results = [
        {
            "error_code": log_dir.error_code,
            "log_dir": log_dir.path,
            # In Kafka, a topic without partitions selects none. In the handler, it selects all.
            "topics": by_topic(
                (
                    replica
                    for replica in log_dir.replicas
                    if body.topics is None or (replica.topic, replica.partition) in partitions
                ),
                _replica,
            ),
            "total_bytes": log_dir.total_bytes,
            "usable_bytes": log_dir.usable_bytes,
            "is_cordoned": False,
        }
        for log_dir in handler.describe_log_dirs(named)
    ]
    return {"error_code": ErrorCode.NONE, "results": results}


@api(
    ApiKey.ALTER_REPLICA_LOG_DIRS,
    Versions(1, 2, flexible=2),
    rights_of="Broker/AlterReplicaLogDirs",
    refused=_not_altered,
)
async def alter_replica_log_dirs(request: Request, body: Any, handler: LogDirsHandler) -> Fields:
    """Starts moves one after another. A move is answered when its copy has begun."""
    return _answered(await handler.alter_replica_log_dirs(_moves(body)))


def _moves(body: Any) -> list[ReplicaMove]:
    return [
        ReplicaMove(topic.name, number, log_dir.path)
        for log_dir in body.dirs
        for topic in log_dir.topics
        for number in topic.partitions
    ]


def _answered(started: Sequence[StartedMove]) -> Fields:
    topics = by_topic(started, _altered)
    return {"results": [{"topic_name": topic["topic"], "partitions": topic["partitions"]} for topic in topics]}


def _replica(replica: DescribedReplica) -> Fields:
    return {
        "partition_index": replica.partition,
        "partition_size": replica.size_bytes,
        "offset_lag": replica.offset_lag,
        "is_future_key": replica.is_future,
    }


def _altered(result: StartedMove) -> Fields:
    return {"partition_index": result.partition, "error_code": result.error_code}
