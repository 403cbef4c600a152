"""Tests the time index against a list searched from end to end."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm_broker.log.segment.offset_index import CorruptIndexError
from klamm_broker.log.segment.time_index import TimeIndex, TimestampOffset

BASE = 40
observed = st.lists(st.integers(-1, 60), max_size=40)


def build(timestamps: list[int]) -> tuple[TimeIndex, list[TimestampOffset]]:
    """Returns the index after observing one batch per timestamp, and the entries it should have."""
    index = TimeIndex(BASE, 12 * 100)
    entries: list[TimestampOffset] = []
    for number, timestamp in enumerate(timestamps, start=1):
        index.append_if_later(timestamp, BASE + number)
        if timestamp > max((entry.timestamp_ms for entry in entries), default=-1):
            entries.append(TimestampOffset(timestamp, BASE + number))
    return index, entries


@given(observed, st.integers(-3, 65))
def test_lookup_is_the_last_entry_at_or_below(timestamps: list[int], target: int) -> None:
    index, entries = build(timestamps)
    before = [entry for entry in entries if entry.timestamp_ms <= target]
    assert index.lookup(target) == (before[-1] if before else TimestampOffset(-1, BASE))
    assert index.last == (entries[-1] if entries else TimestampOffset(-1, BASE))


@given(observed, st.integers(0, 100))
def test_truncate_drops_the_offset_and_all_after(timestamps: list[int], offset: int) -> None:
    index, entries = build(timestamps)
    index.truncate_to(offset)
    kept = [entry for entry in entries if entry.offset < offset]
    assert len(index) == len(kept)
    assert index.last == (kept[-1] if kept else TimestampOffset(-1, BASE))


@given(observed, st.integers(0, 5))
def test_decode_reads_what_was_encoded_and_skips_padding(timestamps: list[int], padding: int) -> None:
    index, entries = build(timestamps)
    again = TimeIndex.decode(BASE, 1200, index.unwritten() + bytes(12 * padding))
    assert [again.lookup(entry.timestamp_ms) for entry in entries] == entries
    assert len(again) == len(entries)


def test_the_file_format_is_kafkas() -> None:
    index, _ = build([5, 1_700_000_000_000])
    assert index.unwritten() == struct.pack(">qiqi", 5, 1, 1_700_000_000_000, 2)


@pytest.mark.parametrize(
    "data",
    [
        b"\0" * 11,
        struct.pack(">qiqi", 5, 1, 5, 2),
        struct.pack(">qiqi", 5, 2, 6, 2),
        struct.pack(">qi", -5, 1),
        struct.pack(">qi", 5, -1),
        struct.pack(">qiqiqi", 5, 1, 0, 0, 6, 3),
    ],
    ids=["size", "equal times", "equal offsets", "negative time", "negative offset", "hole"],
)
def test_decode_refuses_a_damaged_time_index(data: bytes) -> None:
    with pytest.raises(CorruptIndexError):
        TimeIndex.decode(BASE, 1200, data)


def test_the_time_index_keeps_one_slot_for_sealing() -> None:
    index = TimeIndex(0, 36)
    index.append_if_later(1, 1)
    assert not index.is_full
    index.append_if_later(2, 2)
    assert index.is_full
    index.append_if_later(3, 3)
    with pytest.raises(AssertionError):
        index.append_if_later(4, 4)
