"""Tests the offset index against a list searched from end to end."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm_broker.log.segment.offset_index import CorruptIndexError, IndexEntry, OffsetIndex

BASE = 5_000_000_000
growing = st.lists(st.integers(1, 50), max_size=40).map(lambda steps: [sum(steps[: i + 1]) for i in range(len(steps))])


def build(offsets: list[int]) -> OffsetIndex:
    index = OffsetIndex(BASE, 8 * 100)
    for number, offset in enumerate(offsets):
        index.append(BASE + offset, 10 * (number + 1))
    return index


@given(growing, st.integers(-5, 2100))
def test_lookup_is_the_last_entry_at_or_below(offsets: list[int], target: int) -> None:
    entries = [IndexEntry(BASE, 0)] + [IndexEntry(BASE + o, 10 * (n + 1)) for n, o in enumerate(offsets)]
    expected = [entry for entry in entries if entry.offset <= BASE + target or entry.position == 0][-1]
    assert build(offsets).lookup(BASE + target) == expected


@given(growing, st.integers(0, 450))
def test_floor_position_is_the_last_indexed_position_at_or_below(offsets: list[int], position: int) -> None:
    known = [0] + [10 * (n + 1) for n in range(len(offsets))]
    assert build(offsets).floor_position(position) == max(p for p in known if p <= position)


@given(growing, st.integers(-5, 2100), st.integers(0, 40))
def test_truncate_drops_the_offset_and_all_after(offsets: list[int], target: int, written: int) -> None:
    index = build(offsets)
    index.written_count = min(written, len(offsets))
    index.truncate_to(BASE + target)
    kept = [BASE + offset for offset in offsets if offset < target]
    assert [entry.offset for entry in index.entries()] == kept
    assert index.written_count <= len(kept)


@given(growing, st.integers(0, 5))
def test_decode_reads_what_was_encoded_and_skips_padding(offsets: list[int], padding: int) -> None:
    index = build(offsets)
    again = OffsetIndex.decode(BASE, 8 * 100, index.unwritten() + bytes(8 * padding))
    assert list(again.entries()) == list(index.entries())
    assert again.unwritten() == b""


def test_the_file_format_is_kafkas() -> None:
    assert build([7, 300]).unwritten() == struct.pack(">iiii", 7, 10, 300, 20)


@pytest.mark.parametrize(
    "data",
    [
        b"\0" * 7,
        struct.pack(">iiii", 7, 10, 7, 20),
        struct.pack(">iiii", 7, 10, 8, 10),
        struct.pack(">iiii", 0, 0, 8, 10) + struct.pack(">ii", 7, 30),
        struct.pack(">ii", -1, 10),
        struct.pack(">ii", 5, -10),
        struct.pack(">iiiiii", 5, 10, 0, 0, 7, 30),
    ],
    ids=["size", "equal offsets", "equal positions", "descending", "negative", "negative position", "hole"],
)
def test_decode_refuses_a_damaged_offset_index(data: bytes) -> None:
    with pytest.raises(CorruptIndexError):
        OffsetIndex.decode(BASE, 800, data)


def test_the_offset_index_is_full_at_its_size_limit() -> None:
    index = OffsetIndex(0, 17)
    index.append(1, 10)
    assert not index.is_full
    index.append(2, 20)
    assert index.is_full
    with pytest.raises(AssertionError):
        index.append(3, 30)
