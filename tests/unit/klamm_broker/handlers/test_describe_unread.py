"""Tests the number, the age and the deletion of unread records, and the transactions that hold them back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from klamm.errors import ErrorCode
from klamm.records.encoder import encode_batch
from klamm.records.header import read_header
from klamm_broker.handlers.describe_unread import (
    DescribeUnreadHandler,
    HoldingTransaction,
    ReaderPosition,
    UnreadRecords,
)
from klamm_broker.io import record_thread
from klamm_broker.log.partition.partition_log import TransactionEnd
from klamm_broker.log.segment.check_budget import RECORD_NS
from klamm_broker.log.segment.unread_search import HEADERS_MAX
from tests.support.led_partition import NAME, OTHER, LedPartition, led_by
from tests.support.open_files import open_files

NOW = 1_700_000_000_000
PRODUCER, OTHER_PRODUCER = 7, 8


class World:
    """A led partition, whose records are all replicated, and the handler."""

    def __init__(self, directory: Path) -> None:
        self.led = LedPartition(directory, retention_ms=1_000_000, segment_bytes=1_000_000)
        self.now_ms = NOW
        self.handler = DescribeUnreadHandler(self.led.replicas, self.led.thread, lambda: self.now_ms)
        self.sequences = dict.fromkeys((PRODUCER, OTHER_PRODUCER), 0)

    def write(self, *times_ms: int, producer_id: int = -1) -> None:
        """Appends a batch with a record for each time, in the transaction of a producer if one is named."""
        records = [(time_ms, b"k", b"v", ()) for time_ms in times_ms]
        log = self.led.partition.log
        if producer_id < 0:
            batch, guard = encode_batch(records), None
        else:
            sequence = self.sequences[producer_id]
            batch = encode_batch(
                records, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, is_transactional=True
            )
            self.sequences[producer_id] += len(records)
            guard = log.producers.begin_verification(read_header(batch), now_ms=NOW)
        log.append_as_leader(batch, leader_epoch=1, now_ms=NOW, guard=guard)
        self.replicate()

    def end(self, producer_id: int, *, is_committed: bool) -> None:
        self.led.partition.log.append_marker(
            TransactionEnd(producer_id, 0, is_committed, 0, 1), leader_epoch=1, now_ms=NOW
        )
        self.replicate()

    def replicate(self) -> None:
        partition = self.led.partition
        partition.high_watermark = partition.log.log_end_offset
        partition.log.commit(partition.high_watermark)

    def at(self, *offsets: int) -> list[UnreadRecords]:
        positions = [ReaderPosition(NAME.topic, NAME.partition, offset) for offset in offsets]
        return asyncio.run(self.handler.describe_unread(positions))

    def counts(self, *offsets: int) -> list[int]:
        return [one.record_count for one in self.at(*offsets)]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.led.close()


def test_records_after_the_position_are_counted_and_the_next_one_has_its_time(world: World) -> None:
    world.write(NOW - 500, NOW - 400, NOW - 300)
    world.write(NOW - 200)
    assert world.counts(0, 1, 3, 4) == [4, 3, 1, 0]
    times = [one.next_timestamp_ms for one in world.at(0, 1, 2, 3, 4)]
    assert times == [NOW - 500, NOW - 400, NOW - 300, NOW - 200, -1]
    (found,) = world.at(1)
    assert (found.log_start_offset, found.high_watermark, found.last_stable_offset) == (0, 4, 4)
    assert found.held_by is None


def test_markers_and_aborted_records_are_nothing_to_read(world: World) -> None:
    world.write(NOW, producer_id=PRODUCER)
    world.end(PRODUCER, is_committed=True)
    world.write(NOW + 1, NOW + 2, producer_id=PRODUCER)
    world.end(PRODUCER, is_committed=False)
    assert world.counts(0, 1, 2, 4, 5) == [1, 0, 0, 0, 0]
    world.write(NOW + 9)
    assert [(one.record_count, one.next_timestamp_ms) for one in world.at(1, 3)] == [(1, NOW + 9)] * 2


def test_records_of_another_producer_within_an_aborted_transaction_count(world: World) -> None:
    world.write(NOW, producer_id=PRODUCER)
    world.write(NOW + 1, producer_id=OTHER_PRODUCER)
    world.write(NOW + 2, producer_id=PRODUCER)
    world.end(PRODUCER, is_committed=False)
    world.end(OTHER_PRODUCER, is_committed=True)
    assert [(one.record_count, one.next_timestamp_ms) for one in world.at(0)] == [(1, NOW + 1)]


def test_an_open_transaction_is_named_with_its_first_record(world: World) -> None:
    world.write(NOW)
    world.write(NOW - 60_000, producer_id=PRODUCER)
    world.write(NOW + 1, NOW + 2)
    (found,) = world.at(1)
    assert found.last_stable_offset == 1
    assert found.held_by == HoldingTransaction(PRODUCER, 1, NOW - 60_000)
    assert (found.record_count, found.next_timestamp_ms) == (3, NOW - 60_000)


def test_a_transaction_whose_marker_is_not_replicated_has_no_producer(world: World) -> None:
    world.write(NOW, producer_id=PRODUCER)
    log = world.led.partition.log
    log.append_marker(TransactionEnd(PRODUCER, 0, True, 0, 1), leader_epoch=1, now_ms=NOW)
    (found,) = world.at(0)
    assert found.held_by == HoldingTransaction(-1, 0, NOW)


def test_a_position_before_the_log_begins_at_the_log_start(world: World) -> None:
    for number in range(5):
        world.write(NOW + number)
    world.led.partition.log.advance_log_start(3, high_watermark=5)
    (found,) = world.at(1)
    assert (found.log_start_offset, found.record_count, found.next_timestamp_ms) == (3, 2, NOW + 3)


def test_far_from_the_end_offsets_are_counted(world: World) -> None:
    for number in range(HEADERS_MAX):
        world.write(NOW + number, producer_id=PRODUCER)
    world.end(PRODUCER, is_committed=True)
    world.write(NOW)
    assert world.counts(0, 1) == [HEADERS_MAX + 2, HEADERS_MAX]


def test_the_next_deletion_is_that_of_the_next_record(world: World) -> None:
    world.write(NOW - 400_000)
    (found,) = world.at(0)
    assert found.next_deletion_ms == NOW + 600_000
    (read,) = world.at(1)
    assert read.next_deletion_ms == -1, "nothing is unread"


def test_each_position_is_refused_by_itself(world: World) -> None:
    world.write(NOW)
    found = asyncio.run(world.handler.describe_unread([ReaderPosition("unknown", 0, 0), ReaderPosition(*NAME, 0)]))
    assert [one.error_code for one in found] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE]
    world.led.replicas.apply(world.led.partition, led_by(OTHER, 2))
    (moved,) = world.at(0)
    assert moved.error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_many_positions_are_answered_in_order(world: World) -> None:
    for number in range(100):
        world.write(NOW + number)
    assert world.counts(*range(100, 0, -1)) == list(range(100))


def test_searches_over_the_budget_go_on_where_they_stopped(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(10):
        world.write(NOW + number)
    before = open_files(world.led.partition.log.directory)
    assert before
    expected = world.counts(0, 5, 9)
    monkeypatch.setattr(record_thread, "LATE_NS", 12 * RECORD_NS)
    assert world.counts(0, 5, 9) == expected == [10, 5, 1]
    assert open_files(world.led.partition.log.directory) == before


def test_a_search_that_cannot_begin_leaves_no_file_open(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.write(NOW)
    world.write(NOW, producer_id=PRODUCER)
    world.at(0)
    before = open_files(world.led.partition.log.directory)
    assert before
    reader = world.led.partition.log.reader
    begin = reader.open_unread_search

    def fail_for_the_transaction(start_offset: int, end_offset: int) -> object:
        if start_offset == 1:
            raise ErrorCode.KAFKA_STORAGE_ERROR.exception("the disk failed")
        return begin(start_offset, end_offset)

    monkeypatch.setattr(reader, "open_unread_search", fail_for_the_transaction)
    (found,) = world.at(0)
    assert found.error_code is ErrorCode.KAFKA_STORAGE_ERROR
    assert open_files(world.led.partition.log.directory) == before
