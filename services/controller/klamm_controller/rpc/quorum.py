"""Admin: the quorum of controllers."""

from __future__ import annotations

from typing import Any

from klamm.wire.v1.controller_pb2 import DescribeQuorumRequest, DescribeQuorumResponse, QuorumReplica
from klamm_controller.log.port import QuorumStatus, ReplicaStatus
from klamm_controller.rpc.gateway import Gateway


class QuorumRpcs:
    """DescribeQuorum."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def describe_quorum(self, request: DescribeQuorumRequest, context: Any) -> DescribeQuorumResponse:
        return await self._gateway.answer(context, self._describe(), DescribeQuorumResponse)

    async def _describe(self) -> DescribeQuorumResponse:
        await self._gateway.controller.confirm()
        status = self._gateway.controller.quorum()
        return DescribeQuorumResponse(
            leader_id=status.leader_id,
            term=status.term,
            high_watermark=status.high_watermark,
            replicas=[self._replica(status, replica) for replica in status.replicas],
        )

    def _replica(self, status: QuorumStatus, replica: ReplicaStatus) -> QuorumReplica:
        endpoints = {node.node_id: node.endpoint for node in self._gateway.quorum}
        return QuorumReplica(
            node_id=replica.node_id,
            endpoint=endpoints.get(replica.node_id),
            is_voter=replica.is_voter,
            end_index=replica.end_index,
            lag=max(0, status.end_index - replica.end_index),
            silent_ms=replica.silent_ms,
        )
