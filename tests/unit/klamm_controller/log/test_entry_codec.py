from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.wire.v1.metadata_pb2 import MetadataBatch, MetadataRecord, NoOpRecord
from klamm_controller.log.entry_codec import CorruptLogError, decode, encode, entry_key, snapshot_key

BATCH = MetadataBatch(term=3, base_index=7, end_index=9, records=[MetadataRecord(no_op=NoOpRecord())] * 2)


def test_keys_sort_as_their_indexes():
    indexes = [0, 1, 255, 256, 1 << 40]
    keys = [entry_key(index) for index in indexes] + [snapshot_key(5, 0), snapshot_key(5, 1), snapshot_key(6, 0)]
    assert keys == sorted(keys)


def test_what_is_written_is_read():
    assert decode(entry_key(7), encode(entry_key(7), BATCH)) == BATCH


@given(position=st.integers(0, 1_000), bit=st.integers(0, 7))
def test_any_flipped_bit_is_seen(position, bit):
    value = bytearray(encode(entry_key(7), BATCH))
    value[position % len(value)] ^= 1 << bit
    with pytest.raises(CorruptLogError, match="the entry at index 7"):
        decode(entry_key(7), bytes(value))


def test_a_value_under_another_key_is_seen():
    with pytest.raises(CorruptLogError, match="the entry at index 8"):
        decode(entry_key(8), encode(entry_key(7), BATCH))
    with pytest.raises(CorruptLogError, match="chunk 2 of the snapshot of index 9"):
        decode(snapshot_key(9, 2), encode(snapshot_key(9, 1), BATCH))


def test_a_value_that_is_cut_is_seen():
    value = encode(entry_key(7), BATCH)
    for size in range(len(value)):
        with pytest.raises(CorruptLogError):
            decode(entry_key(7), value[:size])
