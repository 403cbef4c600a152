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
                node_id=each.node_id,
                host=each.endpoint.host,
                port=each.endpoint.port,
                is_voter=each.is_voter,
                end_index=each.end_index,
                lag=each.lag,
                silent_ms=each.silent_ms,
                kind=QuorumReplicaKind(each.kind),
                directory_id=each.directory_id,
            )
            for each in message.replicas
        ),
    )
