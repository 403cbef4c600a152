"""Tests ListOffsets by version: the special timestamps of each version, and refusals before the handler is called."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any

import pytest

from klamm.errors import ErrorCode
from klamm_broker.handlers.list_offsets import ListedOffset, OffsetQuery
from klamm_broker.kafka.api import ApiKey
from klamm_broker.kafka.codec.fields import Fields
from klamm_broker.kafka.cold.partitions import list_offsets, listed_fields
from klamm_broker.kafka.requests import Request
from klamm_broker.kafka.served_apis import SPOKEN
from tests.support.cold_requests import answer_of

VERSIONS = range(SPOKEN[ApiKey.LIST_OFFSETS].min, SPOKEN[ApiKey.LIST_OFFSETS].max + 1)
SINCE = {-1: 1, -2: 1, -3: 7, -4: 8, -5: 9, -6: 11}


class ScriptedListOffsets:
    """A handler that finds the partition's number as its offset, or answers each partition with an error."""

    def __init__(self, error: ErrorCode = ErrorCode.NONE) -> None:
        self._error = error
        self.timestamps: list[int] = []

    def list_offsets(self, queries: list[OffsetQuery], *, isolation_level: int) -> list[ListedOffset]:
        self.timestamps = [query.timestamp_ms for query in queries]
        return [
            ListedOffset(query.topic, query.partition, self._error, offset=query.partition, leader_epoch=7)
            for query in queries
        ]


def finished(work: Generator[None, None, Any]) -> Any:
    """Runs the work without a pause."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            return done.value


def listed(handler: ScriptedListOffsets, version: int, partitions: list[tuple[int, int]]) -> list[Any]:
    """Returns the answers for `partitions`, which are (number, timestamp)."""
    asked = [
        {"partition_index": number, "timestamp": timestamp, "current_leader_epoch": -1}
        for number, timestamp in partitions
    ]
    fields = {
        "replica_id": -1,
        "isolation_level": 0,
        "topics": [{"name": "flights", "partitions": asked}],
        "timeout": 1_000,
    }

    async def handle(request: Request, wanted: Any) -> Fields:
        found = finished(list_offsets(request, wanted, handler))
        return finished(listed_fields(found, request.version))

    answer = asyncio.run(answer_of(handle, ApiKey.LIST_OFFSETS, version, fields))
    return [partition for topic in answer.topics for partition in topic.partitions]


@pytest.mark.parametrize("version", VERSIONS)
def test_each_version_of_list_offsets_knows_only_the_special_timestamps_of_its_kip(version: int) -> None:
    handler = ScriptedListOffsets()
    partitions = listed(handler, version, [*((-timestamp, timestamp) for timestamp in SINCE), (0, 5), (9, -7)])
    known = {-timestamp: -timestamp for timestamp, since in SINCE.items() if version >= since} | {0: 0}
    expected = {number: (known.get(number, -1), number in known) for number in [*range(7), 9]}
    assert {
        partition.partition_index: (partition.offset, partition.error_code == 0) for partition in partitions
    } == expected
    assert {int(partition.error_code) for partition in partitions} == {ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION}
    assert sorted(handler.timestamps) == sorted([5, *(-number for number in known if number)])
    if version >= 4:
        assert {partition.leader_epoch for partition in partitions if not partition.error_code} == {7}
        assert {partition.leader_epoch for partition in partitions if partition.error_code} == {-1}


@pytest.mark.parametrize("version", [VERSIONS[0], VERSIONS[-1]])
def test_a_partition_that_is_named_twice_is_refused(version: int) -> None:
    partitions = listed(ScriptedListOffsets(), version, [(1, -1), (2, -1), (1, -2)])
    assert [(partition.partition_index, int(partition.error_code)) for partition in partitions] == [
        (1, ErrorCode.INVALID_REQUEST),
        (2, ErrorCode.NONE),
        (1, ErrorCode.INVALID_REQUEST),
    ]


@pytest.mark.parametrize(
    ("version", "code"), [(4, ErrorCode.LEADER_NOT_AVAILABLE), (5, ErrorCode.OFFSET_NOT_AVAILABLE)]
)
def test_older_clients_get_leader_not_available_instead_of_offset_not_available(version: int, code: ErrorCode) -> None:
    (one,) = listed(ScriptedListOffsets(ErrorCode.OFFSET_NOT_AVAILABLE), version, [(1, -1)])
    assert one.error_code == code
