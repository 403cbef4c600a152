"""DeleteRecords: moves a partition's first offset forward; the files below go with the next retention pass.

With other replicas in sync the answer is this leader's log start; followers learn it with their fetches.
"""

from __future__ import annotations

from typing import Any

from klamm.errors import BrokerError, ErrorCode
from klamm.model import INTERNAL_TOPICS, TopicPartition
from klamm.wire.v1.broker_pb2 import (
    DeletedRecords,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
)
from klamm_broker import metrics
from klamm_broker.replica.replica_manager import ReplicaManager

HIGH_WATERMARK = -1
"""As `before_offset`: delete everything."""


class DeleteRecordsRpc:
    """Handles DeleteRecords."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas

    async def delete_records(self, request: DeleteRecordsRequest, context: Any) -> DeleteRecordsResponse:
        return DeleteRecordsResponse(partitions=[self._delete(one) for one in request.partitions])

    def _delete(self, wanted: DeleteRecordsPartition) -> DeletedRecords:
        try:
            low_watermark = self._advance(wanted)
        except BrokerError as error:
            metrics.on_error("delete_records", error.code)
            return DeletedRecords(
                topic=wanted.topic,
                partition=wanted.partition,
                error_code=error.code,
                error_message=error.message,
                low_watermark=-1,
            )
        return DeletedRecords(topic=wanted.topic, partition=wanted.partition, low_watermark=low_watermark)

    def _advance(self, wanted: DeleteRecordsPartition) -> int:
        """The partition's new log start."""
        if wanted.topic in INTERNAL_TOPICS:
            raise ErrorCode.INVALID_TOPIC_EXCEPTION.exception(f"records of {wanted.topic} are not for deleting")
        partition = self._replicas.leader(TopicPartition(wanted.topic, wanted.partition))
        before_offset = wanted.before_offset
        if before_offset == HIGH_WATERMARK:
            before_offset = partition.high_watermark
        if before_offset < 0:
            raise ErrorCode.OFFSET_OUT_OF_RANGE.exception(
                f"before offset {before_offset}; expected 0 or more, or -1 for the high watermark"
            )
        partition.log.advance_log_start(before_offset, high_watermark=partition.high_watermark)
        return partition.log.log_start_offset
