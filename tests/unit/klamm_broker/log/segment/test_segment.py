"""Tests one segment: append, read, locate, index, truncate, and failures of the disk."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.records.header import iter_headers
from klamm_broker.log.log_config import LogConfig
from klamm_broker.log.segment.record_set import AppendedBatch
from klamm_broker.log.segment.segment import Segment, roll_jitter_ms
from klamm_broker.log.segment.segment_files import FileSlice
from tests.support.segments import CONFIG, append, new_segment


def test_appended_batches_are_read_back_byte_for_byte(filled) -> None:
    segment, batches = filled
    assert segment.files.size_bytes == sum(map(len, batches))
    assert segment.files.read(FileSlice(0, segment.files.size_bytes)) == b"".join(batches)
    assert segment.next_offset == 60
    segment.check_invariants()


def test_a_record_set_is_written_with_one_writev(tmp_path, make_batch, faulty_disk) -> None:
    segment = new_segment(tmp_path, faulty_disk)
    segment.create()
    append(segment, make_batch(1) + make_batch(1, base_offset=1) + make_batch(1, base_offset=2))
    assert faulty_disk.calls.count("writev") == 1
    segment.release()


@pytest.mark.parametrize("limit", [1, 7, 64])
def test_short_writes_are_continued(tmp_path, make_batch, faulty_disk, limit: int) -> None:
    faulty_disk.write_limit = limit
    segment = new_segment(tmp_path, faulty_disk)
    segment.create()
    data = make_batch(2) + make_batch(1, base_offset=2)
    segment.append(
        [data[:10], data[10:11], data[11:]],
        [AppendedBatch(1, 1_000, len(make_batch(2))), AppendedBatch(2, 1_000, len(make_batch(1)))],
        len(data),
    )
    assert segment.files.read(FileSlice(0, segment.files.size_bytes)) == data
    segment.release()


@pytest.mark.parametrize("room", [0, 1, 60, 100])
def test_a_full_disk_leaves_the_segment_as_before(tmp_path, make_batch, faulty_disk, room: int) -> None:
    segment = new_segment(tmp_path, faulty_disk)
    segment.create()
    append(segment, make_batch(2))
    before = Path(segment.files.path()).read_bytes()
    faulty_disk.room = room
    with pytest.raises(OSError, match="No space"):
        append(segment, make_batch(3, base_offset=2))
    assert Path(segment.files.path()).read_bytes() == before
    faulty_disk.room = None
    append(segment, make_batch(3, base_offset=2))
    assert segment.next_offset == 5
    segment.check_invariants()
    segment.release()


def test_truncation_keeps_the_batches_below_the_offset_and_their_indexes(filled) -> None:
    segment, batches = filled
    for offset in (58, 41, 40, 7, 1, 0):
        kept = []
        for batch in batches:
            ((_, header),) = iter_headers(batch)
            if header.last_offset < offset:
                kept.append(batch)
        segment.write_indexes()
        segment.truncate_to(offset)
        assert segment.files.read(FileSlice(0, segment.files.size_bytes)) == b"".join(kept)
        segment.check_invariants()
        last = max((h.last_offset for b in kept for _, h in iter_headers(b)), default=-1)
        assert segment.next_offset == last + 1
        expected = max((h.max_timestamp_ms for b in kept for _, h in iter_headers(b)), default=-1)
        assert segment.indexes.largest.timestamp_ms == expected
        for path in (segment.files.path(".index"), segment.files.path(".timeindex")):
            assert Path(path).exists()
    assert segment.truncate_to(5) == 0


def test_recover_cuts_at_the_first_bad_byte(filled) -> None:
    segment, batches = filled
    segment.release()
    path = Path(segment.files.path())
    data = bytearray(path.read_bytes())
    start = sum(map(len, batches[:17]))
    data[start + 65] ^= 0xFF
    path.write_bytes(data)
    seen = []
    again = new_segment(Path(segment.files.directory))
    assert again.recover(seen.append) == len(data) - start
    assert path.read_bytes() == bytes(data[:start])
    assert len(seen) == 17
    again.check_invariants()
    again.release()


def test_recover_refuses_batches_out_of_order(tmp_path, make_batch) -> None:
    segment = new_segment(tmp_path)
    segment.create()
    append(segment, make_batch(5))
    append(segment, make_batch(2, base_offset=3))
    segment.release()
    again = new_segment(tmp_path)
    again.recover(lambda header: None)
    assert again.next_offset == 5
    again.release()


class TestRoll:
    def should_roll(self, segment: Segment, **options) -> bool:
        arguments = {
            "append_bytes": 100,
            "last_offset": 100,
            "max_timestamp_ms": 1_000,
            "now_ms": 5_000,
            "config": CONFIG,
        }
        return segment.should_roll(**(arguments | options))

    def test_a_segment_rolls_when_an_append_would_exceed_segment_bytes(self, filled) -> None:
        segment, _ = filled
        room = CONFIG.segment_bytes - segment.files.size_bytes
        assert not self.should_roll(segment, append_bytes=room)
        assert self.should_roll(segment, append_bytes=room + 1)

    def test_a_segment_rolls_when_record_timestamps_span_more_than_segment_ms(self, filled) -> None:
        segment, _ = filled
        config = LogConfig(segment_ms=500)
        assert not self.should_roll(segment, max_timestamp_ms=1_500, config=config, now_ms=10**9)
        assert self.should_roll(segment, max_timestamp_ms=1_501, config=config, now_ms=0)

    def test_the_first_timestamp_survives_a_restart(self, filled) -> None:
        segment, _ = filled
        segment.release()
        again = new_segment(Path(segment.files.directory))
        again.open()
        config = LogConfig(segment_ms=500)
        assert not self.should_roll(again, max_timestamp_ms=1_500, config=config)
        assert self.should_roll(again, max_timestamp_ms=1_501, config=config)
        again.release()

    def test_a_segment_without_timestamps_rolls_by_the_brokers_clock(self, tmp_path, make_batch) -> None:
        segment = new_segment(tmp_path)
        segment.create()
        append(segment, make_batch(1, timestamps=[-1]))
        config = LogConfig(segment_ms=500)
        assert not self.should_roll(segment, max_timestamp_ms=-1, now_ms=5_500, config=config)
        assert self.should_roll(segment, max_timestamp_ms=-1, now_ms=5_501, config=config)
        segment.release()

    def test_the_roll_jitter_makes_a_segment_roll_earlier(self, filled) -> None:
        segment, _ = filled
        segment.roll_jitter_ms = 100
        assert self.should_roll(segment, max_timestamp_ms=1_401, config=LogConfig(segment_ms=500))

    def test_a_segment_with_a_full_index_rolls(self, tmp_path, make_batch) -> None:
        segment = new_segment(tmp_path, config=LogConfig(segment_index_bytes=36, index_interval_bytes=1))
        segment.create()
        for offset in range(3):
            assert not self.should_roll(segment)
            append(segment, make_batch(1, base_offset=offset, timestamps=[offset]))
        assert self.should_roll(segment)
        segment.release()

    def test_a_segment_rolls_before_an_offset_too_far_from_its_base_offset(self, filled) -> None:
        segment, _ = filled
        assert not self.should_roll(segment, last_offset=2**31 - 1)
        assert self.should_roll(segment, last_offset=2**31)

    def test_an_empty_segment_never_rolls_for_time_or_size(self, tmp_path) -> None:
        segment = new_segment(tmp_path)
        segment.create()
        assert not self.should_roll(segment, append_bytes=10**9, now_ms=10**15)
        assert self.should_roll(segment, last_offset=2**31)
        segment.release()


@given(st.integers(0, 1000), st.integers(1, 1000), st.integers())
@settings(max_examples=50)
def test_jitter_is_below_both_bounds(jitter_ms: int, segment_ms: int, seed: int) -> None:
    config = LogConfig(segment_jitter_ms=jitter_ms, segment_ms=segment_ms)
    assert 0 <= roll_jitter_ms(config, random.Random(seed)) <= min(jitter_ms, segment_ms)
