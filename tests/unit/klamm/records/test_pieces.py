"""Tests reading the records of a batch in pieces against reading them at once."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.records import HEADER_SIZE_BYTES, BatchHeader, InvalidRecordError, RawRecord, encode_batch, read_header
from klamm.records.keys import parse_keys
from klamm.records.pieces import LONG_RECORD_BYTES, part_header, record_pieces
from klamm.records.record_times import largest_timestamp_ms

LONG = LONG_RECORD_BYTES + 1

sizes = st.one_of(st.integers(0, 30), st.sampled_from([127, 128, 20_000, 700_000, LONG, 3 * LONG]))
contents = st.one_of(st.none(), sizes.map(bytes))
runs = st.tuples(st.integers(-(2**33), 2**33), contents, contents, st.integers(1, 40))
"""Records of one size follow each other, and other sizes follow them."""


def split(data: bytes, seed: int) -> Iterator[bytes]:
    """Yields `data` in pieces of random sizes."""
    rng, at = random.Random(seed), 0
    while at < len(data):
        size = rng.choice([0, 1, 7, 1_000, 300_000, 5_000_000])
        yield data[at : at + size]
        at += size


def batch_of(records: list[RawRecord]) -> tuple[BatchHeader, bytes]:
    batch = encode_batch(records)
    return read_header(batch), batch[HEADER_SIZE_BYTES:]


@given(st.lists(runs, min_size=1, max_size=6), st.integers(0, 1_000))
def test_pieces_have_the_records_of_the_batch(parts: list[tuple], seed: int) -> None:
    records: list[RawRecord] = []
    for timestamp_ms, key, value, count in parts:
        few = min(count, 2) if len(key or b"") + len(value or b"") > 1_000 else count
        records += [(timestamp_ms + number, key, value, (("h", b"x"),) * (number % 2)) for number in range(few)]
    header, data = batch_of(records)
    expected = parse_keys(header, data)

    pieces, found = [], b""
    for piece in record_pieces(header, split(data, seed), with_keys=True):
        pieces.append(parse_keys(part_header(header, piece), piece.data))
        found += piece.data if piece.long is None else piece.long.head + b"".join(piece.long.rest)
    assert found == data
    assert [key for piece in pieces for key in piece.keys] == expected.keys
    assert [delta for piece in pieces for delta in piece.offset_deltas] == expected.offset_deltas
    assert [delta for piece in pieces for delta in piece.timestamp_deltas] == expected.timestamp_deltas
    assert [piece.is_tombstone(at) for piece in pieces for at in range(len(piece.keys))] == [
        expected.is_tombstone(at) for at in range(len(expected.keys))
    ]

    without_keys = list(record_pieces(header, split(data, seed + 1), with_keys=False))
    assert max(
        largest_timestamp_ms(part_header(header, piece), piece.data) for piece in without_keys
    ) == largest_timestamp_ms(header, data)
    assert sum(piece.record_count for piece in without_keys) == header.record_count
    assert max(len(piece.data) for piece in without_keys) < 7_000_000


def test_the_bytes_of_a_long_record_need_not_be_read() -> None:
    header, data = batch_of([(1, b"a", bytes(LONG), ()), (2, None, None, ()), (3, bytes(LONG), b"v", ())])
    pieces = [
        parse_keys(part_header(header, piece), piece.data)
        for piece in record_pieces(header, split(data, 1), with_keys=True)
    ]
    assert [key for piece in pieces for key in piece.keys] == [b"a", None, bytes(LONG)]


@pytest.mark.parametrize("with_keys", [False, True])
@pytest.mark.parametrize(
    ("counted", "data"),
    [
        (2, b""),
        (1, b"\x00"),
        (1, b"\x01" * 10),
        (1, b"\xff\xff\xff\xff\x0f" * 300_000),
        (1, b"\xff" * 3_000_000),
        (1, b"\xfe\xff\xff\xff\x0f" + bytes(2_000_000)),
    ],
)
def test_bytes_that_are_no_records_are_refused(counted: int, data: bytes, with_keys: bool) -> None:
    header = batch_of([(1, b"k", b"v", ())])[0]._replace(record_count=counted)
    with pytest.raises(InvalidRecordError):
        list(record_pieces(header, iter([data]), with_keys=with_keys))


@pytest.mark.parametrize("with_keys", [False, True])
@pytest.mark.parametrize("value", [b"v", bytes(LONG)])
def test_another_number_of_records_or_bytes_is_refused(value: bytes, with_keys: bool) -> None:
    header, data = batch_of([(number, b"k", value, ()) for number in range(3)])
    wrong = [(header._replace(record_count=2), data), (header._replace(record_count=4), data)]
    wrong += [(header, data[:-1]), (header, data + b"\0"), (header, data[:-LONG])]
    for one, given_data in wrong:
        with pytest.raises(InvalidRecordError):
            list(record_pieces(one, split(given_data, 1), with_keys=with_keys))


def test_a_key_that_is_longer_than_its_record_is_refused() -> None:
    header, data = batch_of([(1, bytes(3 * LONG), b"", ())])
    at = data.index(bytes(100)) - 1
    broken = data[:at] + bytes([data[at] + 1]) + data[at + 1 :]
    for with_keys in (False, True):
        with pytest.raises(InvalidRecordError, match="has a key of"):
            list(record_pieces(header, iter([broken[:LONG], broken[LONG:]]), with_keys=with_keys))
