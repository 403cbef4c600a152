"""DeleteRecords: moves a partition's log start offset forward. The next retention pass deletes the files before it.

The answer waits until the log of every replica on a live broker starts at the new offset. Before that, a new leader
could bring the records back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from klamm.errors import BrokerError, ErrorCode
from klamm.model import INTERNAL_TOPICS, TopicPartition
from klamm_broker.handlers.audit_changes import record_changes
from klamm_broker.handlers.parkers import ClientHost, parker_of, unknown_host
from klamm_broker.handlers.topic_rights import require_topic
from klamm_broker.io import metrics
from klamm_broker.purgatory.driver import PurgatoryDriver
from klamm_broker.replica.delayed_delete_records import DelayedDeleteRecords, PendingRecordDeletion
from klamm_broker.replica.replica_manager import ReplicaManager
from klamm_server.runtime.sliced_work import map_in_slices
from klamm_server.security.audit.events import Activity
from klamm_server.security.needs import DELETE_RECORDS
from klamm_server.security.session import require_audit

HIGH_WATERMARK = -1
"""The `before_offset` that deletes all records."""


class RecordDeletion(NamedTuple):
    """The records of one partition to delete."""

    topic: str
    partition: int
    before_offset: int


class DeletedRecords(NamedTuple):
    """The answer for one partition."""

    topic: str
    partition: int
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str = ""
    low_watermark: int = -1


class DeleteRecordsHandler:
    """Handles DeleteRecords requests of both protocols."""

    def __init__(self, replicas: ReplicaManager, deletions: PurgatoryDriver) -> None:
        self._replicas = replicas
        self._deletions = deletions

    async def delete_records(
        self, deletions: Sequence[RecordDeletion], *, timeout_ms: int, client_host: ClientHost = unknown_host
    ) -> list[DeletedRecords]:
        """Deletes records, and returns one answer per deletion in the same order."""
        outcomes = await map_in_slices(self._begin, deletions)
        waiting = [
            outcome for outcome in outcomes if isinstance(outcome, PendingRecordDeletion) and not outcome.settle()
        ]
        if waiting:
            await self._wait(waiting, timeout_ms, client_host)
        answers = [
            _answer(wanted, outcome) if isinstance(outcome, PendingRecordDeletion) else _failed(wanted, outcome)
            for wanted, outcome in zip(deletions, outcomes, strict=True)
        ]
        record_changes("DeleteRecords", Activity.DELETE, answers)
        return answers

    async def _wait(self, waiting: list[PendingRecordDeletion], timeout_ms: int, client_host: ClientHost) -> None:
        """Waits until all deletions have a result. Undecided ones get REQUEST_TIMED_OUT after the timeout, or
        immediately if the client's user has no place in the purgatory."""
        keys = [deletion.partition.topic_partition for deletion in waiting]
        parker = parker_of(client_host, (key.topic for key in keys))
        if timeout_ms <= 0 or not await self._deletions.wait(
            lambda on_done: DelayedDeleteRecords(waiting, on_done), keys, timeout_ms, parker
        ):
            DelayedDeleteRecords(waiting, lambda: None).on_expiration()

    def _begin(self, wanted: RecordDeletion) -> PendingRecordDeletion | BrokerError:
        """Moves the leader's log start offset. Returns the deletion that waits for the followers, or the error."""
        try:
            require_topic(DELETE_RECORDS, wanted.topic)
            require_audit()
            if wanted.topic in INTERNAL_TOPICS:
                raise ErrorCode.INVALID_TOPIC_EXCEPTION.exception(
                    f"records of the internal topic {wanted.topic} cannot be deleted"
                )
            partition = self._replicas.leader(TopicPartition(wanted.topic, wanted.partition))
            if "delete" not in partition.log.config.cleanup_policy:
                raise ErrorCode.POLICY_VIOLATION.exception(
                    f"cleanup.policy of {wanted.topic} does not contain delete, so its records cannot be deleted"
                )
            before_offset = wanted.before_offset
            if before_offset == HIGH_WATERMARK:
                before_offset = partition.high_watermark
            if before_offset < 0:
                raise ErrorCode.OFFSET_OUT_OF_RANGE.exception(
                    f"before_offset is {before_offset}; expected 0 or more, or -1 for the high watermark"
                )
            self._replicas.delete_records(partition, before_offset)
        except BrokerError as error:
            return error
        return PendingRecordDeletion(partition, before_offset, self._replicas.brokers.live)


def _answer(wanted: RecordDeletion, deletion: PendingRecordDeletion) -> DeletedRecords:
    assert deletion.code is not None, wanted
    if deletion.code:
        return _failed(wanted, deletion.code.exception())
    return DeletedRecords(wanted.topic, wanted.partition, low_watermark=deletion.low_watermark)


def _failed(wanted: RecordDeletion, error: BrokerError) -> DeletedRecords:
    metrics.on_error("delete_records", error.code)
    return DeletedRecords(wanted.topic, wanted.partition, error.code, error.message)
