"""WriteTxnMarkers: ends a transaction in partitions for an operator, after its coordinator has forgotten it (KIP-664).

Kafka's `Admin.abortTransaction` and `kafka-transactions.sh abort` send it to the partition's leader. Klamm's own
coordinators use gRPC. For a partition of `__consumer_offsets`, the group coordinator writes the marker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from itertools import groupby
from typing import Any, Final

from klamm.errors import BrokerError, ErrorCode
from klamm.model import GROUP_METADATA_TOPIC, TopicPartition
from klamm.wire.v1.common_pb2 import (
    TopicPartitions,
    TxnMarker,
    WriteTxnMarkersRequest,
)
from klamm.wire.v1.coordinator_rpc import CoordinatorStub
from klamm_broker.handlers.parkers import ClientHost
from klamm_broker.handlers.write_txn_markers import MarkedPartition, MarkerToWrite, WriteTxnMarkersHandler
from klamm_broker.kafka.api import ApiKey, Versions, api
from klamm_broker.kafka.codec.fields import Fields
from klamm_broker.kafka.cold.forwarding import TIMEOUT_MS, Coordinators
from klamm_broker.kafka.requests import Request
from klamm_broker.log.partition.partition_log import TransactionEnd
from klamm_server.runtime.gather_bounded import gather_bounded

_NOT_READY: Final = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)
"""The errors of a group coordinator that is not ready. The caller gets NOT_LEADER_OR_FOLLOWER instead, as in Kafka,
because callers of WriteTxnMarkers search for leaders."""


def _not_marked(body: Any) -> Fields:
    denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    results: dict[int, dict[tuple[str, int], MarkedPartition]] = {}
    for marker in body.markers:
        refused = results.setdefault(marker.producer_id, {})
        for topic in marker.topics:
            for number in topic.partition_indexes:
                refused[topic.name, number] = MarkedPartition(topic.name, number, denied)
    return _answered(results)


@api(ApiKey.WRITE_TXN_MARKERS, Versions(1, 2, flexible=1), rights_of="Broker/WriteTxnMarkers", refused=_not_marked)
async def write_txn_markers(
    request: Request, body: Any, handler: WriteTxnMarkersHandler, coordinators: Coordinators
) -> Fields:
    """Writes the markers. Returns one answer for each producer."""
    results: dict[int, dict[tuple[str, int], MarkedPartition]] = {}
    for marker in body.markers:
        written = results.setdefault(marker.producer_id, {})
        for result in await _write(marker, handler, coordinators, lambda: request.client_host):
            written[result.topic, result.partition] = result
    return _answered(results)


def _answered(results: Mapping[int, Mapping[tuple[str, int], MarkedPartition]]) -> Fields:
    return {
        "markers": [
            {"producer_id": producer_id, "topics": _by_topic(written.values())}
            for producer_id, written in results.items()
        ]
    }


async def _write(
    body: Any, handler: WriteTxnMarkersHandler, coordinators: Coordinators, client_host: ClientHost
) -> list[MarkedPartition]:
    """Writes one marker to its partitions. A marker without partitions has no effect."""
    offsets = [
        number for topic in body.topics if topic.name == GROUP_METADATA_TOPIC for number in topic.partition_indexes
    ]
    others = [
        TopicPartition(topic.name, number)
        for topic in body.topics
        if topic.name != GROUP_METADATA_TOPIC
        for number in topic.partition_indexes
    ]
    end = TransactionEnd(
        body.producer_id,
        body.producer_epoch,
        body.transaction_result,
        body.coordinator_epoch,
        getattr(body, "transaction_version", 0),
    )
    (here,) = await handler.write_txn_markers([MarkerToWrite(end, others)], client_host)
    there = await gather_bounded(partial(_write_to_offsets, end, coordinators), offsets)
    return [*here, *there]


async def _write_to_offsets(end: TransactionEnd, coordinators: Coordinators, number: int) -> MarkedPartition:
    marker = TxnMarker(
        producer_id=end.producer_id,
        producer_epoch=end.producer_epoch,
        committed=end.is_committed,
        coordinator_epoch=end.coordinator_epoch,
        transaction_version=end.transaction_version,
        topics=[TopicPartitions(topic=GROUP_METADATA_TOPIC, partitions=[number])],
    )
    ask = WriteTxnMarkersRequest(markers=[marker])
    try:
        answer = await coordinators.ask_owner(
            GROUP_METADATA_TOPIC, number, CoordinatorStub.write_txn_markers, ask, timeout_ms=TIMEOUT_MS
        )
        (result,) = [result for marker in answer.markers for result in marker.partitions]
        code = ErrorCode.of(result.error_code)
    except BrokerError as error:
        code = error.code
    return MarkedPartition(
        GROUP_METADATA_TOPIC, number, ErrorCode.NOT_LEADER_OR_FOLLOWER if code in _NOT_READY else code
    )


def _by_topic(results: Iterable[MarkedPartition]) -> list[Fields]:
    in_order = sorted(results, key=lambda result: (result.topic, result.partition))
    return [
        {
            "name": topic,
            "partitions": [{"partition_index": result.partition, "error_code": result.error_code} for result in group],
        }
        for topic, group in groupby(in_order, key=lambda result: result.topic)
    ]
