"""Tests the lookups by time: few records are read on the event loop, many on a thread, and both find the same."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from klamm.errors import ErrorCode
from klamm.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, MAX_TIMESTAMP
from klamm.records.compression import CompressionType
from klamm.records.encoder import encode_batch
from klamm_broker.handlers.list_offsets import LateLookup, ListedOffset, ListOffsetsHandler, OffsetQuery
from tests.support.led_partition import NAME, OTHER, LedPartition, led_by

NOW = 1_700_000_000_000
MANY = 50_000
"""The number of records that are too many for the event loop."""


def batch(count: int, first_ms: int, compression: CompressionType = CompressionType.ZSTD) -> bytes:
    """Returns a batch whose records have the timestamps `first_ms`, `first_ms + 1` and so on."""
    return encode_batch([(first_ms + number, b"k", b"v", ()) for number in range(count)], compression=compression)


class Lookups:
    """A partition with these batches, all committed, and its handler of lookups."""

    def __init__(self, directory: Path, *batches: bytes) -> None:
        self.led = led = LedPartition(directory, max_message_bytes=2_000_000)
        for batch in batches:
            led.partition.log.append_as_leader(batch, leader_epoch=1, now_ms=NOW)
        led.partition.high_watermark = led.partition.log.log_end_offset
        self.handler = ListOffsetsHandler(led.replicas, led.thread)

    def begin(self, *timestamps_ms: int) -> list[ListedOffset | LateLookup]:
        queries = [OffsetQuery(NAME.topic, NAME.partition, one) for one in timestamps_ms]
        return self.handler.list_offsets(queries, isolation_level=0)

    def find(self, *timestamps_ms: int) -> list[int]:
        """Returns the offset of each timestamp."""
        listed = asyncio.run(self.handler.finish(self.begin(*timestamps_ms)))
        assert {one.error_code for one in listed} == {ErrorCode.NONE}
        return [one.offset for one in listed]


@pytest.mark.parametrize("compression", CompressionType)
def test_many_records_are_looked_up_like_few(tmp_path: Path, compression: CompressionType) -> None:
    few = batch(10, NOW + MANY + 10, compression)
    lookups = Lookups(tmp_path, batch(MANY, NOW, compression), batch(10, NOW + MANY, compression), few)
    times = [0, NOW, NOW + 7, NOW + MANY - 1, NOW + MANY + 3, NOW + MANY + 19, NOW + MANY + 20, MAX_TIMESTAMP]
    assert lookups.find(*times) == [0, 0, 7, MANY - 1, MANY + 3, MANY + 19, -1, MANY + 19]
    lookups.led.close()


def test_only_lookups_that_read_many_records_are_late(tmp_path: Path) -> None:
    lookups = Lookups(tmp_path, batch(MANY, NOW), batch(10, NOW + MANY))
    found = lookups.begin(EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, MAX_TIMESTAMP, NOW + MANY + 5, NOW + MANY + 10, NOW)
    assert [isinstance(one, LateLookup) for one in found] == [False, False, False, False, False, True]
    lookups.led.close()


def test_the_largest_timestamp_may_be_below_the_log_start(tmp_path: Path) -> None:
    """The records of the batch at the log start are read to know."""
    times = [(NOW + MANY - number, b"k", b"v", ()) for number in range(MANY)]
    lookups = Lookups(tmp_path, encode_batch(times, compression=CompressionType.ZSTD), batch(3, NOW))
    lookups.led.partition.log.advance_log_start(5, high_watermark=MANY)
    assert isinstance(lookups.begin(MAX_TIMESTAMP)[0], LateLookup)
    assert lookups.find(MAX_TIMESTAMP) == [5]
    lookups.led.close()


def test_a_late_lookup_of_a_partition_that_moved_is_refused(tmp_path: Path) -> None:
    lookups = Lookups(tmp_path, batch(MANY, NOW))
    late = lookups.begin(NOW)
    lookups.led.replicas.apply(lookups.led.partition, led_by(OTHER, 2))
    [answer] = asyncio.run(lookups.handler.finish(late))
    assert answer.error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    lookups.led.close()
