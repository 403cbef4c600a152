"""Answers DescribeUnread over gRPC."""

from __future__ import annotations

from klamm.wire.v1 import broker_pb2 as pb
from klamm_broker.handlers.describe_unread import (
    DescribeUnreadHandler,
    HoldingTransaction,
    ReaderPosition,
    UnreadRecords,
)
from klamm_server.runtime.sliced_work import map_in_slices


class UnreadRpc:
    """Handles DescribeUnread."""

    def __init__(self, unread: DescribeUnreadHandler) -> None:
        self._unread = unread

    async def describe_unread(self, request: pb.DescribeUnreadRequest, context: object) -> pb.DescribeUnreadResponse:
        positions = [
            ReaderPosition(position.topic, position.partition, position.offset) for position in request.positions
        ]
        described = await self._unread.describe_unread(positions)
        return pb.DescribeUnreadResponse(partitions=await map_in_slices(_unread, described))


def _unread(unread: UnreadRecords) -> pb.UnreadRecords:
    return pb.UnreadRecords(
        topic=unread.topic,
        partition=unread.partition,
        error_code=unread.error_code,
        error_message=unread.error_message,
        log_start_offset=unread.log_start_offset,
        high_watermark=unread.high_watermark,
        last_stable_offset=unread.last_stable_offset,
        record_count=unread.record_count,
        next_timestamp_ms=_known(unread.next_timestamp_ms),
        next_deletion_ms=_known(unread.next_deletion_ms),
        held_by=None if unread.held_by is None else _transaction(unread.held_by),
    )


def _transaction(transaction: HoldingTransaction) -> pb.HoldingTransaction:
    return pb.HoldingTransaction(
        producer_id=transaction.producer_id,
        first_offset=transaction.first_offset,
        first_timestamp_ms=_known(transaction.first_timestamp_ms),
    )


def _known(time_ms: int) -> int | None:
    return time_ms if time_ms >= 0 else None
