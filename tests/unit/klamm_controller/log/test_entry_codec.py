from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm_controller.log.entry_codec import (
    CorruptLogError,
    decode_entry,
    decode_meta,
    encode_entry,
    encode_meta,
    entry_key,
    seal,
    snapshot_key,
    snapshot_key_end,
    snapshot_position,
    unseal,
)
from klamm_controller.raft.messages import EntryKind, LogEntry, SnapshotId

ENTRY = LogEntry(7, 3, EntryKind.DATA, b"payload")
SNAPSHOT = SnapshotId(end_index=9, term=2)


def test_the_keys_of_entries_and_snapshots_sort_by_index_and_position():
    indexes = [0, 1, 255, 256, 1 << 40]
    newer = SnapshotId(end_index=9, term=3)
    snapshots = [snapshot_key(SNAPSHOT, 0), snapshot_key(SNAPSHOT, 300), snapshot_key_end(SNAPSHOT)]
    keys = [entry_key(index) for index in indexes] + [*snapshots, snapshot_key(newer, 1)]
    assert keys == sorted(keys)
    assert snapshot_position(snapshot_key(SNAPSHOT, 300)) == 300


@pytest.mark.parametrize("kind", EntryKind)
def test_an_encoded_log_entry_round_trips(kind):
    entry = LogEntry(7, 3, kind, b"" if kind is EntryKind.NO_OP else b"payload")
    assert decode_entry(*encode_entry(entry)) == entry


@given(position=st.integers(0, 1_000), bit=st.integers(0, 7))
def test_any_flipped_bit_is_detected(position, bit):
    key, value = encode_entry(ENTRY)
    damaged = bytearray(value)
    damaged[position % len(damaged)] ^= 1 << bit
    with pytest.raises(CorruptLogError, match="the entry at index 7"):
        decode_entry(key, bytes(damaged))


def test_a_value_under_another_key_is_detected():
    with pytest.raises(CorruptLogError, match="the entry at index 8"):
        decode_entry(entry_key(8), encode_entry(ENTRY)[1])
    sealed = seal(snapshot_key(SNAPSHOT, 1), b"part")
    with pytest.raises(CorruptLogError, match="position 2 of the snapshot of index 9"):
        unseal(snapshot_key(SNAPSHOT, 2), sealed)


def test_a_truncated_value_is_detected():
    key, value = encode_entry(ENTRY)
    for size in range(len(value)):
        with pytest.raises(CorruptLogError):
            decode_entry(key, value[:size])


def test_an_entry_of_an_unknown_kind_is_refused():
    key, _ = encode_entry(ENTRY)
    with pytest.raises(CorruptLogError, match="the entry at index 7 does not parse"):
        decode_entry(key, seal(key, bytes(8) + b"\x09"))


def test_named_fields_round_trip_and_a_wrong_name_fails_the_checksum():
    fields = {"term": 3, "voted_for": [1, ""]}
    assert decode_meta(b"mhard-state", encode_meta(b"mhard-state", fields)) == fields
    with pytest.raises(CorruptLogError, match="the hard-state fails its checksum"):
        decode_meta(b"mhard-state", encode_meta(b"mother", fields))
