"""Tests the map of the keys' last offsets against a dict of all keys, and its memory."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm_broker.log.cleaning.offset_map import OffsetMap

RECORDS = st.lists(st.tuples(st.none() | st.sampled_from([b"", b"a", b"b", b"c", b"dd"]), st.integers(1, 9)))


@given(RECORDS, st.integers(0, 9), st.tuples(st.integers(0, 60), st.integers(0, 60)))
def test_the_offset_map_answers_like_a_dict_of_all_keys(
    records: list[tuple[bytes | None, int]], cut: int, span: tuple[int, int]
) -> None:
    offsets: list[int] = []
    for _, step in records:
        offsets.append((offsets[-1] if offsets else 0) + step)
    keys = [key for key, _ in records]
    found = OffsetMap(10**6)
    found.put(keys[:cut], offsets[:cut])
    found.put(keys[cut:], offsets[cut:])
    found.seal()
    last = {key: offset for key, offset in zip(keys, offsets, strict=True) if key is not None}
    low, high = sorted(span)
    assert list(found.survivors(low, high)) == sorted(offset for offset in last.values() if low <= offset <= high)
    assert len(found) == len(last)
    probes = [*keys, b"other", b"a", None]
    at = [*offsets, 3, 3, 3]
    assert found.are_latest(probes, at) == [
        key is not None and last.get(key, -1) <= offset for key, offset in zip(probes, at, strict=True)
    ]
    found.clear()
    assert (len(found), found.used_bytes, list(found.survivors(0, 10**9))) == (0, 0, [])


@pytest.mark.parametrize("key_bytes", [8, 100])
def test_the_offset_map_uses_no_more_memory_than_it_counts(key_bytes: int) -> None:
    """Memory is highest just after the dict has grown, and while the survivors are computed."""
    found = OffsetMap(2_000_000 * (1 + key_bytes // 50))
    number, worst = 0, 0.0
    tracemalloc.start()
    try:
        while not found.is_full:
            keys = [b"%0*d" % (key_bytes, number + i) for i in range(50)]
            found.put(keys, range(number, number + 50))
            number += 50
            del keys
            worst = max(worst, tracemalloc.get_traced_memory()[1] / max(found.used_bytes, 200_000))
            tracemalloc.reset_peak()
        found.seal()
        worst = max(worst, tracemalloc.get_traced_memory()[1] / found.used_bytes)
    finally:
        tracemalloc.stop()
    assert worst <= 1.05
    assert number > 5_000
