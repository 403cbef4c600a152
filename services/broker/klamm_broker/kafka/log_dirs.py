"""What lies in this broker's log directories and what shall move: DescribeLogDirs, AlterReplicaLogDirs (KIP-113)."""

from __future__ import annotations

from typing import Any

from klamm.errors import ErrorCode
from klamm.wire.v1 import broker_pb2 as pb
from klamm.wire.v1.common_pb2 import TopicPartitions
from klamm_broker.kafka.groups import by_topic
from klamm_broker.kafka.messages import Fields
from klamm_broker.kafka.requests import Request
from klamm_broker.rpc.log_dirs import LogDirsRpc


async def describe_log_dirs(request: Request, wanted: Any, handler: LogDirsRpc) -> Fields:
    """Without topics: of all that is there."""
    named = [TopicPartitions(topic=one.topic, partitions=one.partitions) for one in wanted.topics or ()]
    partitions = {(one.topic, number) for one in named for number in one.partitions}
    answer = await handler.describe_log_dirs(pb.DescribeLogDirsRequest(topics=named), None)
    results = [
        {
            "error_code": one.error_code,
            "log_dir": one.path,
            # To Kafka a topic without partitions is none of them, to the handler all.
            "topics": by_topic(
                (
                    replica
                    for replica in one.replicas
                    if wanted.topics is None or (replica.topic, replica.partition) in partitions
                ),
                _replica,
            ),
            "total_bytes": one.total_bytes,
            "usable_bytes": one.usable_bytes,
            "is_cordoned": False,
        }
        for one in answer.log_dirs
    ]
    return {"error_code": ErrorCode.NONE, "results": results}


async def alter_replica_log_dirs(request: Request, wanted: Any, handler: LogDirsRpc) -> Fields:
    """One after another; each is answered when its copy has begun."""
    ask = pb.AlterReplicaLogDirsRequest(
        replicas=[
            pb.ReplicaLogDir(topic=topic.name, partition=number, path=log_dir.path)
            for log_dir in wanted.dirs
            for topic in log_dir.topics
            for number in topic.partitions
        ]
    )
    answer = await handler.alter_replica_log_dirs(ask, None)
    by_name = by_topic(answer.results, _altered)
    return {"results": [{"topic_name": one["topic"], "partitions": one["partitions"]} for one in by_name]}


def _replica(replica: pb.DescribedReplica) -> Fields:
    return {
        "partition_index": replica.partition,
        "partition_size": replica.size_bytes,
        "offset_lag": replica.offset_lag,
        "is_future_key": replica.is_future,
    }


def _altered(result: pb.AlteredReplicaLogDir) -> Fields:
    return {"partition_index": result.partition, "error_code": result.error_code}
