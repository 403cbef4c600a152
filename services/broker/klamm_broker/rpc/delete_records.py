"""DeleteRecords: moves a partition's first offset forward; the files below go with the next retention pass.

Answered when every replica on a live broker starts there: until then a new leader could bring the records back.
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
from klamm_broker.purgatory.driver import PurgatoryDriver
from klamm_broker.replica.delayed_delete_records import DelayedDeleteRecords, PendingDeletion
from klamm_broker.replica.replica_manager import ReplicaManager

HIGH_WATERMARK = -1
"""As `before_offset`: delete everything."""


class DeleteRecordsRpc:
    """Handles DeleteRecords."""

    def __init__(self, replicas: ReplicaManager, deletions: PurgatoryDriver) -> None:
        self._replicas = replicas
        self._deletions = deletions

    async def delete_records(self, request: DeleteRecordsRequest, context: Any) -> DeleteRecordsResponse:
        outcomes = [self._begin(one) for one in request.partitions]
        waiting = [one for one in outcomes if isinstance(one, PendingDeletion) and not one.settle()]
        if waiting:
            await self._wait(waiting, request.timeout_ms)
        answers = [
            _answer(wanted, outcome) if isinstance(outcome, PendingDeletion) else _failed(wanted, outcome)
            for wanted, outcome in zip(request.partitions, outcomes, strict=True)
        ]
        return DeleteRecordsResponse(partitions=answers)

    async def _wait(self, waiting: list[PendingDeletion], timeout_ms: int) -> None:
        """Until all of them are settled."""
        if self._deletions.is_full or timeout_ms <= 0:
            DelayedDeleteRecords(waiting, lambda: None).on_expiration()
            return
        keys = [one.partition.topic_partition for one in waiting]
        await self._deletions.wait(lambda on_done: DelayedDeleteRecords(waiting, on_done), keys, timeout_ms)

    def _begin(self, wanted: DeleteRecordsPartition) -> PendingDeletion | BrokerError:
        """Moves the leader's own start."""
        try:
            if wanted.topic in INTERNAL_TOPICS:
                raise ErrorCode.INVALID_TOPIC_EXCEPTION.exception(f"records of {wanted.topic} are not for deleting")
            partition = self._replicas.leader(TopicPartition(wanted.topic, wanted.partition))
            if "delete" not in partition.log.config.cleanup_policy:
                raise ErrorCode.POLICY_VIOLATION.exception(
                    f"cleanup.policy of {wanted.topic} does not contain delete: what it keeps is for compaction to say"
                )
            before_offset = wanted.before_offset
            if before_offset == HIGH_WATERMARK:
                before_offset = partition.high_watermark
            if before_offset < 0:
                raise ErrorCode.OFFSET_OUT_OF_RANGE.exception(
                    f"before offset {before_offset}; expected 0 or more, or -1 for the high watermark"
                )
            self._replicas.delete_records(partition, before_offset)
        except BrokerError as error:
            return error
        return PendingDeletion(partition, before_offset, self._replicas.brokers.live)


def _answer(wanted: DeleteRecordsPartition, deletion: PendingDeletion) -> DeletedRecords:
    assert deletion.code is not None, wanted
    if deletion.code:
        return _failed(wanted, deletion.code.exception())
    return DeletedRecords(topic=wanted.topic, partition=wanted.partition, low_watermark=deletion.low_watermark)


def _failed(wanted: DeleteRecordsPartition, error: BrokerError) -> DeletedRecords:
    metrics.on_error("delete_records", error.code)
    return DeletedRecords(
        topic=wanted.topic,
        partition=wanted.partition,
        error_code=error.code,
        error_message=error.message,
        low_watermark=-1,
    )
