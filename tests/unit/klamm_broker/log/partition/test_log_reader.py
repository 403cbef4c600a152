"""Tests reading a log over several segments, by offset and by time."""

from __future__ import annotations

import itertools

import pytest

from klamm.errors import BrokerError, ErrorCode
from klamm.records.header import iter_headers
from tests.support.partition_logs import NOW, fill


@pytest.mark.parametrize("max_bytes", [1, 150, 700, 5_000, 100_000])
def test_a_read_from_any_offset_starts_with_the_batch_that_holds_it(log, max_bytes: int) -> None:
    for offset in range(120):
        data = log.reader.read(offset, max_bytes).records
        headers = [header for _, header in iter_headers(data)]
        assert headers[0].base_offset <= offset <= headers[0].last_offset
        assert len(data) <= max_bytes or len(headers) == 1
        for before, after in itertools.pairwise(headers):
            assert after.base_offset == before.next_offset


def test_reading_stops_below_max_offset(log) -> None:
    for max_offset in (0, 1, 2, 3, 50, 51, 52, 119, 120, 500):
        for offset in (0, 49, 50, 51, 118):
            headers = [h for _, h in iter_headers(log.reader.read(offset, 10**6, max_offset=max_offset).records)]
            assert all(header.last_offset < max_offset for header in headers)
            # A read returns something whenever the batch of `offset` ends below the bound.
            assert bool(headers) == (offset - offset % 3 + 3 <= max_offset)


def test_a_batch_larger_than_max_bytes_is_read_only_with_min_one(log) -> None:
    assert log.reader.read(5, 10, min_one=False).records == b""
    assert log.reader.read(5, 10, min_one=True).records


def test_reading_at_the_end_and_beyond(log) -> None:
    assert log.reader.read(120, 1000) == (b"", 0, 120)
    for offset in (-1, 121):
        with pytest.raises(BrokerError, match=f"offset {offset} is not in the log; expected 0 to 120") as caught:
            log.reader.read(offset, 1000)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_an_index_damaged_under_a_running_broker_is_rebuilt(log, harness, read_all) -> None:
    expected = read_all(log)
    base = log.segments.base_offsets[1]
    for segment in list(harness.pool._segments.values()):
        harness.pool.forget(segment)
        segment.release()
    harness.path(base, ".index").write_bytes(b"\1" * 16)
    assert read_all(log) == expected


class TestByTime:
    def naive(self, records, timestamp: int, start: int):
        hits = [(time, offset) for time, offset in records if time >= timestamp and offset >= start]
        return hits[0] if hits else None

    @pytest.mark.parametrize("start", [0, 17, 100])
    def test_a_lookup_by_timestamp_equals_a_scan_of_all_records(self, harness, make_batch, start: int) -> None:
        log = harness.open()
        records: list[tuple[int, int]] = []
        # The timestamps are out of order within batches, between batches and between segments.
        for number in range(60):
            times = [(number * 7919 + i * 104729) % 997 for i in range(2)]
            records += [(time, len(records) + i) for i, time in enumerate(times)]
            log.append_as_leader(make_batch(2, timestamps=times), leader_epoch=4, now_ms=NOW)
        assert len(log.segments.base_offsets) > 3
        log.advance_log_start(start, high_watermark=120)
        for timestamp in range(-1, 1_000, 7):
            found = log.reader.find_timestamp(timestamp)
            expected = self.naive(records, timestamp, start)
            assert (found and found[:2]) == expected, timestamp
            assert found is None or found.leader_epoch == 4

    def test_a_lookup_by_timestamp_finds_the_same_after_a_restart(self, log, harness) -> None:
        before = [log.reader.find_timestamp(time) for time in range(NOW, NOW + 410, 5)]
        assert before[-1] is None
        log.close()
        again = harness.open(clean=True)
        assert [again.reader.find_timestamp(time) for time in range(NOW, NOW + 410, 5)] == before

    def test_max_timestamp_is_the_first_record_that_has_it(self, harness, make_batch) -> None:
        log = harness.open()
        assert log.reader.find_max_timestamp() is None
        for times in ([5, 9, 3], [9, 2], [7]):
            log.append_as_leader(make_batch(timestamps=times), leader_epoch=1, now_ms=NOW)
        assert log.reader.find_max_timestamp() == (9, 1, 1)
        fill(log, make_batch)
        assert log.reader.find_max_timestamp() == (NOW + 390, 6 + 39 * 3, 2)

    def test_the_earliest_offset_has_the_leader_epoch_of_the_log_start(self, log) -> None:
        log.advance_log_start(50, high_watermark=120)
        assert log.reader.earliest() == (-1, 50, 2)
