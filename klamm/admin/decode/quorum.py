"""Decodes the controllers' quorum that its leader describes."""

from __future__ import annotations

from klamm.admin.types.quorum import QuorumDescription, QuorumReplicaKind, ReplicaOfQuorum
from klamm.wire.v1 import controller_pb2


def quorum_description(message: controller_pb2.DescribeQuorumResponse) -> QuorumDescription:
    return QuorumDescription(
        leader_id=message.leader_id,
        term=message.term,
        high_watermark=message.high_watermark,
        replicas=tuple(
            ReplicaOfQuorum(
                node_id=replica.node_id,
                host=replica.endpoint.host,
                port=replica.endpoint.port,
                is_voter=replica.is_voter,
                end_index=replica.end_index,
                lag=replica.lag,
                silent_ms=replica.silent_ms,
                kind=QuorumReplicaKind(replica.kind),
                directory_id=replica.directory_id,
            )
            for replica in message.replicas
        ),
    )
