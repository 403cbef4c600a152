"""WriteTxnMarkers: an operator ends a transaction in partitions that its coordinator has forgotten (KIP-664).

Kafka's `Admin.abortTransaction` and `kafka-transactions.sh abort` send it to the partition's leader; Klamm's own
coordinators use gRPC. Markers in a partition of `__consumer_offsets` are its group coordinator's to write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import groupby
from typing import Any, Final

from klamm.errors import BrokerError, ErrorCode
from klamm.model import GROUP_METADATA_TOPIC
from klamm.wire.v1.common_pb2 import (
    PartitionResult,
    TopicPartitions,
    TxnMarker,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from klamm_broker.kafka.forwarding import TIMEOUT_MS, Coordinators
from klamm_broker.kafka.messages import Fields
from klamm_broker.kafka.requests import Request
from klamm_broker.rpc.write_txn_markers import WriteTxnMarkersRpc

_NOT_READY: Final = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)
"""Of a group coordinator; who writes markers asks for leaders, and is told NOT_LEADER_OR_FOLLOWER, as by Kafka."""


async def write_txn_markers(
    request: Request, wanted: Any, handler: WriteTxnMarkersRpc, coordinators: Coordinators
) -> Fields:
    """One answer for each producer."""
    results: dict[int, dict[tuple[str, int], PartitionResult]] = {}
    for one in wanted.markers:
        written = results.setdefault(one.producer_id, {})
        for result in await _write(one, handler, coordinators):
            written[result.topic, result.partition] = result
    return {
        "markers": [
            {"producer_id": producer_id, "topics": _by_topic(written.values())}
            for producer_id, written in results.items()
        ]
    }


async def _write(wanted: Any, handler: WriteTxnMarkersRpc, coordinators: Coordinators) -> list[PartitionResult]:
    """A marker without partitions is written nowhere."""
    offsets = [number for one in wanted.topics if one.name == GROUP_METADATA_TOPIC for number in one.partition_indexes]
    others = [one for one in wanted.topics if one.name != GROUP_METADATA_TOPIC]
    marker = _marker(wanted, [TopicPartitions(topic=one.name, partitions=one.partition_indexes) for one in others])
    here = await handler.write_txn_markers(WriteTxnMarkersRequest(markers=[marker]), None)
    there = await asyncio.gather(*(_write_to_offsets(wanted, number, coordinators) for number in offsets))
    return [*_results(here), *there]


async def _write_to_offsets(wanted: Any, number: int, coordinators: Coordinators) -> PartitionResult:
    marker = _marker(wanted, [TopicPartitions(topic=GROUP_METADATA_TOPIC, partitions=[number])])
    ask = WriteTxnMarkersRequest(markers=[marker])
    try:
        answer = await coordinators.ask_owner(
            GROUP_METADATA_TOPIC, number, "write_txn_markers", ask, timeout_ms=TIMEOUT_MS
        )
        (result,) = _results(answer)
    except BrokerError as error:
        result = PartitionResult(topic=GROUP_METADATA_TOPIC, partition=number, error_code=error.code)
    if result.error_code in _NOT_READY:
        result.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    return result


def _marker(wanted: Any, topics: list[TopicPartitions]) -> TxnMarker:
    return TxnMarker(
        producer_id=wanted.producer_id,
        producer_epoch=wanted.producer_epoch,
        committed=wanted.transaction_result,
        coordinator_epoch=wanted.coordinator_epoch,
        transaction_version=getattr(wanted, "transaction_version", 0),
        topics=topics,
    )


def _results(answer: WriteTxnMarkersResponse) -> list[PartitionResult]:
    return [result for marker in answer.markers for result in marker.partitions]


def _by_topic(results: Iterable[PartitionResult]) -> list[Fields]:
    in_order = sorted(results, key=lambda one: (one.topic, one.partition))
    return [
        {
            "name": topic,
            "partitions": [{"partition_index": one.partition, "error_code": one.error_code} for one in group],
        }
        for topic, group in groupby(in_order, key=lambda one: one.topic)
    ]
