"""DescribeProducers: what a partition's leader remembers of its producers, open transactions included (KIP-664)."""

from __future__ import annotations

from typing import Any

from klamm.errors import BrokerError, ErrorCode
from klamm.model import TopicPartition, topic_name_problem
from klamm.wire.v1.broker_pb2 import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionProducers,
    ProducerDescription,
)
from klamm_broker import metrics
from klamm_broker.replica.replica_manager import ReplicaManager


class DescribeProducersRpc:
    """Handles DescribeProducers."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas

    async def describe_producers(self, request: DescribeProducersRequest, context: Any) -> DescribeProducersResponse:
        return DescribeProducersResponse(
            partitions=[
                self._describe(TopicPartition(one.topic, number)) for one in request.topics for number in one.partitions
            ]
        )

    def _describe(self, name: TopicPartition) -> PartitionProducers:
        answer = PartitionProducers(topic=name.topic, partition=name.partition)
        try:
            if problem := topic_name_problem(name.topic):
                raise ErrorCode.INVALID_TOPIC_EXCEPTION.exception(problem)
            producers = self._replicas.leader(name).log.producers.descriptions()
        except BrokerError as error:
            metrics.on_error("describe_producers", error.code)
            answer.error_code, answer.error_message = error.code, error.message
            return answer
        answer.producers.extend(
            ProducerDescription(
                producer_id=one.producer_id,
                producer_epoch=one.epoch,
                last_sequence=one.last_sequence,
                last_timestamp_ms=one.last_ms,
                coordinator_epoch=one.coordinator_epoch,
                current_txn_start_offset=one.txn_first_offset,
            )
            for one in sorted(producers)
        )
        return answer
