"""DescribeLogDirs and AlterReplicaLogDirs over gRPC."""

from __future__ import annotations

from klamm.wire.v1 import broker_pb2 as pb
from klamm_broker.grpc.named_topics import named_topics
from klamm_broker.handlers.log_dirs import LogDirsHandler, ReplicaMove, StartedMove
from klamm_server.runtime.sliced_work import map_in_slices


class LogDirsRpc:
    """Handles DescribeLogDirs and AlterReplicaLogDirs."""

    def __init__(self, handler: LogDirsHandler) -> None:
        self._handler = handler

    async def describe_log_dirs(
        self, request: pb.DescribeLogDirsRequest, context: object
    ) -> pb.DescribeLogDirsResponse:
        described = self._handler.describe_log_dirs(named_topics(request.topics))
        return pb.DescribeLogDirsResponse(
            log_dirs=[
                pb.DescribedLogDir(
                    error_code=log_dir.error_code,
                    path=log_dir.path,
                    total_bytes=log_dir.total_bytes,
                    usable_bytes=log_dir.usable_bytes,
                    replicas=[pb.DescribedReplica(**replica._asdict()) for replica in log_dir.replicas],
                )
                for log_dir in described
            ]
        )

    async def alter_replica_log_dirs(
        self, request: pb.AlterReplicaLogDirsRequest, context: object
    ) -> pb.AlterReplicaLogDirsResponse:
        started = await self._handler.alter_replica_log_dirs(
            ReplicaMove(replica.topic, replica.partition, replica.path) for replica in request.replicas
        )
        return pb.AlterReplicaLogDirsResponse(results=await map_in_slices(_altered, started))


def _altered(move: StartedMove) -> pb.AlteredReplicaLogDir:
    return pb.AlteredReplicaLogDir(**move._asdict())
