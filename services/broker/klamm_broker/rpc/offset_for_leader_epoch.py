"""OffsetForLeaderEpoch: where an epoch ends in the leader's log, for readers that look for truncation (KIP-320)."""

from __future__ import annotations

from typing import Any

from klamm.errors import BrokerError
from klamm.model import TopicPartition
from klamm.wire.v1.broker_pb2 import (
    EpochEnd,
    EpochQuery,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from klamm_broker import metrics
from klamm_broker.replica.replica_manager import ReplicaManager


class OffsetForLeaderEpochRpc:
    """Handles OffsetForLeaderEpoch."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas

    async def offset_for_leader_epoch(
        self, request: OffsetForLeaderEpochRequest, context: Any
    ) -> OffsetForLeaderEpochResponse:
        return OffsetForLeaderEpochResponse(partitions=[self._look_up(one) for one in request.partitions])

    def _look_up(self, wanted: EpochQuery) -> EpochEnd:
        answer = EpochEnd(topic=wanted.topic, partition=wanted.partition, leader_epoch=-1, end_offset=-1)
        try:
            partition = self._replicas.leader(
                TopicPartition(wanted.topic, wanted.partition), wanted.current_leader_epoch
            )
        except BrokerError as error:
            metrics.on_error("offset_for_leader_epoch", error.code)
            answer.error_code, answer.error_message = error.code, error.message
            return answer
        answer.leader_epoch, answer.end_offset = partition.epoch_end(wanted.leader_epoch)
        return answer
