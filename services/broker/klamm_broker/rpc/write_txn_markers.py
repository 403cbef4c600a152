"""WriteTxnMarkers: a transaction coordinator ends transactions in the partitions that this broker leads.

Kafka's `KafkaApis.handleWriteTxnMarkersRequest` (KIP-98, KIP-1228). Each marker is a control batch of its own, appended
here and now; the answer waits until every in-sync replica has all of them, or says of which that is not known.
"""

from __future__ import annotations

from typing import Any

from klamm.errors import BrokerError, ErrorCode
from klamm.model import TopicPartition
from klamm.wire.v1.common_pb2 import (
    PartitionResult,
    TxnMarker,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
    WrittenTxnMarker,
)
from klamm_broker import metrics
from klamm_broker.log.partition_log import TransactionEnd
from klamm_broker.purgatory.driver import PurgatoryDriver
from klamm_broker.replica.delayed_produce import PendingAppend
from klamm_broker.replica.replica_manager import ReplicaManager
from klamm_broker.rpc.append_wait import wait_for_appends
from klamm_server.txn_markers import check_marker

_Outcomes = dict[TopicPartition, PendingAppend | BrokerError]
"""Of one marker: what it waits for, or why it was not written."""


class WriteTxnMarkersRpc:
    """Handles WriteTxnMarkers."""

    def __init__(self, replicas: ReplicaManager, produces: PurgatoryDriver, *, timeout_ms: int) -> None:
        self._replicas = replicas
        self._produces = produces
        self._timeout_ms = timeout_ms

    async def write_txn_markers(self, request: WriteTxnMarkersRequest, context: Any) -> WriteTxnMarkersResponse:
        outcomes = [self._append(marker) for marker in request.markers]
        pending = [one for each in outcomes for one in each.values() if isinstance(one, PendingAppend)]
        await wait_for_appends(self._produces, pending, self._timeout_ms)
        return WriteTxnMarkersResponse(
            markers=[
                WrittenTxnMarker(
                    producer_id=marker.producer_id,
                    partitions=[_result(partition, outcome) for partition, outcome in each.items()],
                )
                for marker, each in zip(request.markers, outcomes, strict=True)
            ]
        )

    def _append(self, marker: TxnMarker) -> _Outcomes:
        partitions = [TopicPartition(one.topic, number) for one in marker.topics for number in one.partitions]
        try:
            check_marker(marker)
        except BrokerError as error:
            return dict.fromkeys(partitions, error)
        end = TransactionEnd(
            marker.producer_id,
            marker.producer_epoch,
            marker.committed,
            marker.coordinator_epoch,
            marker.transaction_version,
        )
        return {partition: self._append_one(partition, end) for partition in partitions}

    def _append_one(self, partition: TopicPartition, end: TransactionEnd) -> PendingAppend | BrokerError:
        try:
            replica, appended = self._replicas.append_marker(partition, end)
        except BrokerError as error:
            return error
        return PendingAppend(replica, appended.last_offset + 1)


def _result(partition: TopicPartition, outcome: PendingAppend | BrokerError) -> PartitionResult:
    result = PartitionResult(topic=partition.topic, partition=partition.partition)
    if isinstance(outcome, BrokerError):
        result.error_code, result.error_message = outcome.code, outcome.message
    elif outcome.code:
        result.error_code, result.error_message = outcome.code, outcome.code.text
    if result.error_code:
        metrics.on_error("write_txn_markers", ErrorCode.of(result.error_code))
    return result
