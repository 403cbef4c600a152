"""Asks the leaders of partitions which records groups have still to read."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from klamm.errors import ErrorCode, KlammError
from klamm.model import TopicPartition
from klamm.wire.v1.broker_pb2 import DescribeUnreadRequest, ReaderPosition, UnreadRecords
from klamm.wire.v1.broker_rpc import BrokerStub
from klamm_coordinator.lag.group_lag import Holding, Unread
from klamm_server.rpc.broker_channels import BrokerChannels

TIMEOUT_MS: Final = 3_000
"""How long a leader may take. The answers of other leaders must not wait for it any longer."""
POSITIONS_PER_CALL: Final = 2_000

Position = tuple[TopicPartition, int]
"""A partition, and the offset of the next record to read."""


class UnreadAsker:
    """Asks over the connections to brokers."""

    def __init__(self, brokers: BrokerChannels) -> None:
        self._brokers = brokers

    async def ask(self, positions: Iterable[Position]) -> Mapping[Position, Unread]:
        """Returns the answer for each position. An answer that did not come in time has an error."""
        answers: dict[Position, Unread] = {}
        by_leader: defaultdict[BrokerStub, list[Position]] = defaultdict(list)
        for position in dict.fromkeys(positions):
            leader = self._brokers.leader_of(*position[0])
            if leader is None:
                answers[position] = _failed(ErrorCode.LEADER_NOT_AVAILABLE)
            else:
                by_leader[leader].append(position)
        parts = [
            (leader, asked[start : start + POSITIONS_PER_CALL])
            for leader, asked in by_leader.items()
            for start in range(0, len(asked), POSITIONS_PER_CALL)
        ]
        for answered in await asyncio.gather(*(_ask(leader, asked) for leader, asked in parts)):
            answers.update(answered)
        return answers


async def _ask(leader: BrokerStub, positions: list[Position]) -> dict[Position, Unread]:
    request = DescribeUnreadRequest(
        positions=[ReaderPosition(topic=tp.topic, partition=tp.partition, offset=offset) for tp, offset in positions]
    )
    try:
        response = await leader.describe_unread(request, timeout_ms=TIMEOUT_MS)
    except KlammError as error:
        return dict.fromkeys(positions, Unread(ErrorCode.NETWORK_EXCEPTION, str(error)))
    return dict(zip(positions, map(_unread, response.partitions), strict=True))


def _failed(code: ErrorCode) -> Unread:
    return Unread(code, code.text)


def _unread(unread: UnreadRecords) -> Unread:
    if unread.error_code:
        return Unread(ErrorCode.of(unread.error_code), unread.error_message)
    return Unread(
        log_start_offset=unread.log_start_offset,
        high_watermark=unread.high_watermark,
        last_stable_offset=unread.last_stable_offset,
        record_count=unread.record_count,
        next_timestamp_ms=unread.next_timestamp_ms if unread.HasField("next_timestamp_ms") else None,
        next_deletion_ms=unread.next_deletion_ms if unread.HasField("next_deletion_ms") else None,
        held_by=_holding(unread) if unread.HasField("held_by") else None,
    )


def _holding(unread: UnreadRecords) -> Holding:
    held_by = unread.held_by
    first_ms = held_by.first_timestamp_ms if held_by.HasField("first_timestamp_ms") else None
    return Holding(held_by.producer_id, held_by.first_offset, first_ms)
