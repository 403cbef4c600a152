"""WriteTxnMarkers: writes the markers that end transactions, for a transaction coordinator, in the partitions that this
broker leads.

Kafka's `KafkaApis.handleWriteTxnMarkersRequest` (KIP-98, KIP-1228). Each marker is a control batch, appended
immediately. The answer waits until every in-sync replica has all of them. A partition whose marker is not replicated in
time gets an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from klamm.errors import BrokerError, ErrorCode
from klamm.model import TopicPartition
from klamm_broker.handlers.append_wait import wait_for_appends
from klamm_broker.handlers.parkers import ClientHost, server
from klamm_broker.io import metrics
from klamm_broker.log.partition.partition_log import TransactionEnd
from klamm_broker.purgatory.driver import PurgatoryDriver
from klamm_broker.replica.delayed_produce import PendingAppend
from klamm_broker.replica.replica_manager import ReplicaManager
from klamm_server.rpc.txn_markers import check_marker
from klamm_server.runtime.sliced_work import map_in_slices


class MarkerToWrite(NamedTuple):
    """The end of a transaction, and the partitions to write its marker to."""

    end: TransactionEnd
    partitions: Sequence[TopicPartition]


class MarkedPartition(NamedTuple):
    """The answer for one marker in one partition."""

    topic: str
    partition: int
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str = ""


class WriteTxnMarkersHandler:
    """Handles WriteTxnMarkers requests of both protocols."""

    def __init__(self, replicas: ReplicaManager, produces: PurgatoryDriver, *, timeout_ms: int) -> None:
        self._replicas = replicas
        self._produces = produces
        self._timeout_ms = timeout_ms

    async def write_txn_markers(
        self, markers: Sequence[MarkerToWrite], client_host: ClientHost
    ) -> list[list[MarkedPartition]]:
        """Writes the markers. Returns for each marker the answers of its partitions."""
        asked = [(marker.end, partition) for marker in markers for partition in marker.partitions]
        outcomes = await map_in_slices(lambda write: self._append(*write), asked)
        pending = [outcome for outcome in outcomes if isinstance(outcome, PendingAppend)]
        await wait_for_appends(self._produces, pending, self._timeout_ms, server(client_host))
        results = iter(
            await map_in_slices(lambda written: _result(written[0][1], written[1]), zip(asked, outcomes, strict=True))
        )
        return [[next(results) for _ in marker.partitions] for marker in markers]

    def _append(self, end: TransactionEnd, partition: TopicPartition) -> PendingAppend | BrokerError:
        try:
            check_marker(end)
            replica, appended = self._replicas.append(partition, end)
        except BrokerError as error:
            return error
        return PendingAppend(replica, appended.last_offset + 1)


def _result(partition: TopicPartition, outcome: PendingAppend | BrokerError) -> MarkedPartition:
    if isinstance(outcome, BrokerError):
        code, message = outcome.code, outcome.message
    else:
        code = outcome.code or ErrorCode.NONE
        message = code.text if code else ""
    if code:
        metrics.on_error("write_txn_markers", code)
    return MarkedPartition(*partition, code, message)
