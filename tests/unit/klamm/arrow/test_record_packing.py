"""Tests record batches from columns against the rows one by one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.arrow.record_packing import NO_PARTITION, PackedBatch, Rows, pack
from klamm.core import core
from klamm.records import decode_batch, encode_batch, encode_headers

contents = st.one_of(st.none(), st.binary(max_size=300))
headers = st.lists(st.tuples(st.text(max_size=4), contents), max_size=2)
row = st.tuples(st.integers(0, 2), st.integers(-1, 3), contents, contents, headers, st.integers(0, 2**41))

TOPICS = ("a", "b", "c")
needs_core = pytest.mark.skipif(core is None, reason="klamm was built without a C compiler, or KLAMM_CORE=pure")


def packed_in_python(rows: Rows, batch_bytes: int) -> list[PackedBatch]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("klamm.arrow.record_packing.core", None)
        return list(pack(rows, batch_bytes))


def sliced(array: pa.Array | None) -> pa.Array | None:
    """Returns the same array as a part of a larger one."""
    if array is None:
        return None
    filler = pa.array([b"filler", None, b""], pa.binary())
    return pa.concat_arrays([filler, array, filler]).slice(3, len(array))


def columns(rows: list[tuple]) -> Rows:
    topics, partitions, keys, values, row_headers, timestamps_ms = zip(*rows, strict=True)
    has_headers = any(row_headers)
    return Rows(
        topics=TOPICS,
        topic_numbers=np.array(topics, np.int64),
        partitions=np.array(partitions, np.int64),
        keys=pa.array(keys, pa.binary()),
        values=pa.array(values, pa.binary()),
        headers=pa.array([encode_headers(row_header) for row_header in row_headers], pa.binary())
        if has_headers
        else None,
        timestamps_ms=np.array(timestamps_ms, np.int64),
    )


@settings(max_examples=80, deadline=None)
@given(st.lists(row, min_size=1, max_size=40), st.integers(1, 600))
def test_every_row_is_a_record_of_its_partition_in_order(rows, batch_bytes):
    found: dict[tuple, list] = {}
    for topic, partition, records in packed_in_python(columns(rows), batch_bytes):
        batch = encode_batch(records, base_offset=7)
        decoded = decode_batch(batch)
        assert [record.offset for record in decoded] == list(range(7, 7 + len(records)))
        assert list(records) == [(each.timestamp_ms, each.key, each.value, each.headers) for each in decoded]
        assert len(records) == 1 or len(records.data) <= 2 * batch_bytes + 30 * len(records)
        found.setdefault((topic, partition), []).extend(records)
    expected: dict[tuple, list] = {}
    for topic, partition, key, value, row_headers, timestamp_ms in rows:
        target = (TOPICS[topic], None if partition == NO_PARTITION else partition)
        expected.setdefault(target, []).append((timestamp_ms, key, value, tuple(row_headers)))
    assert found == expected


@needs_core
@settings(max_examples=200, deadline=None)
@given(st.lists(row, min_size=1, max_size=40), st.integers(1, 600), st.booleans())
def test_the_core_packs_the_same_batches(rows, batch_bytes, is_part):
    made = columns(rows)
    if is_part:
        made = Rows(
            topics=made.topics,
            topic_numbers=made.topic_numbers,
            partitions=made.partitions,
            keys=sliced(made.keys),
            values=sliced(made.values),
            headers=sliced(made.headers),
            timestamps_ms=made.timestamps_ms,
        )
    assert list(pack(made, batch_bytes)) == packed_in_python(columns(rows), batch_bytes)


@needs_core
def test_the_core_packs_columns_without_memory():
    """An array of nulls has no bytes, and an array without nulls has no bits for them."""
    rows = columns([(0, 1, None, None, [], 5)] * 3)
    (batch,) = pack(rows, 1_000)
    assert list(batch.records) == [(5, None, None, ())] * 3


@needs_core
@pytest.mark.parametrize(
    ("ends", "size"),
    [((0, 5, 3), 5), ((0, 2, 9), 5), ((-1, 2, 3), 5), ((0, 1_000_000, 3), 5), ((0, 1, 1), 0)],
)
def test_the_core_refuses_an_array_whose_rows_do_not_lie_within_its_data(ends: tuple[int, ...], size: int) -> None:
    data = bytes(size) if size else None
    with pytest.raises(ValueError, match="malformed Arrow array"):
        core.BinaryColumn(None, np.array(ends, np.int32).tobytes(), data, 0, 2)


def test_packed_batches_are_at_most_as_large_as_requested():
    rows = [(0, 1, None, b"x" * 84, [], 0)] * 1_000
    sizes = [len(records.data) for _, _, records in pack(columns(rows), 10_000)]
    assert len(sizes) == 10
    assert max(sizes) <= 10_000


def test_a_record_larger_than_a_batch_is_one_of_its_own():
    rows = [(0, 1, None, value, [], 0) for value in (b"a", b"x" * 5_000, b"b", b"c")]
    assert [len(records) for _, _, records in pack(columns(rows), 1_000)] == [1, 1, 2]


def test_no_rows_make_no_batch():
    assert list(pack(columns([(0, 1, None, b"", [], 0)]), 1_000))
    empty = columns([(0, 1, None, b"", [], 0)])
    none = Rows(
        topics=TOPICS,
        topic_numbers=empty.topic_numbers[:0],
        partitions=empty.partitions[:0],
        keys=empty.keys[:0],
        values=empty.values[:0],
        headers=None,
        timestamps_ms=empty.timestamps_ms[:0],
    )
    assert list(pack(none, 1_000)) == []
