"""Tests that bytes are readable after the high watermark has passed their append."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from klamm_broker.replica.readable_bytes import APPENDS_MAX, PartitionBytes, ReadableBytes


def test_the_bytes_of_an_append_become_readable_as_a_whole() -> None:
    readable = ReadableBytes()
    readable.note(3, 100)
    readable.note(5, 50)
    readable.reach(4)
    assert readable.total == 100
    readable.reach(5)
    assert readable.total == 150


def test_bytes_of_truncated_records_never_become_readable() -> None:
    readable = ReadableBytes()
    readable.note(3, 100)
    readable.forget()
    readable.note(3, 7)
    readable.reach(3)
    assert readable.total == 7


@given(st.lists(st.integers(1, 9), min_size=1, max_size=3 * APPENDS_MAX), st.data())
def test_readable_bytes_never_exceed_the_committed_ones_and_reach_the_total(
    sizes: list[int], data: st.DataObject
) -> None:
    """There may be any number of waiting appends. Each has one offset and `size` bytes here."""
    readable = ReadableBytes()
    for offset, size in enumerate(sizes, start=1):
        readable.note(offset, size)
    high_watermark = data.draw(st.integers(0, len(sizes)))
    readable.reach(high_watermark)
    assert readable.total <= sum(sizes[:high_watermark])
    readable.reach(len(sizes))
    assert readable.total == sum(sizes)


def test_stable_bytes_are_counted_separately_after_the_first_transaction() -> None:
    counted = PartitionBytes()
    counted.note(1, 10, is_unstable=False)
    counted.readable.reach(1)
    assert counted.total(read_committed=True) == 10
    counted.note(2, 5, is_unstable=True)
    counted.readable.reach(2)
    assert [counted.total(read_committed=committed) for committed in (False, True)] == [15, 10]
    assert counted.stable is not None
    counted.stable.reach(2)
    assert counted.total(read_committed=True) == 15
    counted.forget()
    assert counted.total(read_committed=True) == counted.total(read_committed=False)
