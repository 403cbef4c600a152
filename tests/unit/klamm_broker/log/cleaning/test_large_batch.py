"""Tests the cleaning of batches that are too large to be read at once. `test_log_cleaning.py` has the common cases."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from klamm.records import CompressionType, RawRecord, decode_batch, encode_batch, read_header
from klamm_broker.log.cleaning.offset_map import ENTRY_BYTES
from klamm_broker.log.partition.partition_log import PartitionLog
from tests.support.cleaning_steps import compact
from tests.support.compacted_log import CONFIG, NOW, append, batches, pairs, seal
from tests.support.in_pieces import read_in_pieces

LARGE = 9 << 20


@pytest.fixture
def log(harness) -> PartitionLog:
    harness.config = CONFIG
    return harness.open(now_ms=NOW)


def store(log: PartitionLog, rows: Sequence[RawRecord], compression: CompressionType) -> None:
    """Appends a batch as an older broker stored it, whatever its size."""
    log.append_as_follower(
        encode_batch(rows, base_offset=log.log_end_offset, compression=compression), leader_epoch=9, now_ms=NOW
    )


@pytest.mark.parametrize("compression", [CompressionType.GZIP, CompressionType.ZSTD])
def test_a_stored_batch_of_any_size_is_cleaned(log, compression) -> None:
    append(log, [(b"big", b"1")])
    rows = [(NOW, b"a", b"1", ()), (NOW, b"big", bytes(70 << 20), ()), (NOW, b"b", None, ()), (NOW, b"b", b"2", ())]
    store(log, rows, compression)
    append(log, [(b"a", b"2")], roll=True)
    compact(log)
    assert [(offset, key) for offset, key, _ in pairs(log)] == [(2, b"big"), (4, b"b"), (5, b"a")]


@pytest.mark.parametrize("compression", CompressionType)
def test_long_records_are_copied_and_skipped(log, compression) -> None:
    store(log, [(NOW, b"a", b"1" * LARGE, ()), (NOW, b"b", b"2" * LARGE, (("h", b"x"),))], compression)
    append(log, [(b"a", b"3")], roll=True)
    compact(log)
    assert pairs(log) == [(1, b"b", b"2" * LARGE), (2, b"a", b"3")]
    assert read_header(batches(log)[0]).compression is compression


def test_a_first_tombstone_in_a_large_batch_sets_its_delete_horizon(log) -> None:
    rows = [(NOW + 5, b"a", None, ()), (NOW + 70_000, b"b", b"2" * LARGE, (("h", b"x"),)), (NOW, b"c", b"3", ())]
    store(log, rows, CompressionType.ZSTD)
    seal(log)
    compact(log, now_ms=NOW)
    (batch,) = batches(log)
    header = read_header(batch)
    assert header.delete_horizon_ms == NOW + CONFIG.delete_retention_ms
    assert header.max_timestamp_ms == NOW + 70_000
    assert [record[1:] for record in decode_batch(batch)] == rows
    compact(log, now_ms=NOW + CONFIG.delete_retention_ms)
    assert [offset for offset, _, _ in pairs(log)] == [1, 2]


@pytest.mark.parametrize("seed", range(20))
def test_the_map_may_be_full_inside_of_a_batch(log, monkeypatch, seed) -> None:
    """The map must not hold all keys of a large batch. A block of snappy is one piece, so it is left out here."""
    read_in_pieces(monkeypatch, long_record_bytes=27)
    rng = random.Random(seed)
    count = 0
    for number in range(4):
        rows = [
            (NOW, b"key-%d" % rng.randrange(8), rng.choice([b"v" * rng.randrange(40), b"w" * 50]), ())
            for _ in range(rng.randrange(1, 15))
        ]
        store(log, rows, rng.choice([CompressionType.NONE, CompressionType.GZIP, CompressionType.ZSTD]))
        count += len(rows)
        if number == 3 or rng.random() < 0.5:
            seal(log)
    last = {key: (offset, value) for offset, key, value in pairs(log)}
    rounds = 0
    while log.compaction.cleaned_to_offset < count:
        before = log.compaction.cleaned_to_offset
        stats = compact(log, dedupe_buffer_bytes=3 * ENTRY_BYTES)
        assert log.compaction.cleaned_to_offset > before
        assert stats.key_count <= 4
        rounds += 1
        log.check_invariants()
        assert {key: (offset, value) for offset, key, value in pairs(log)} == last
    assert rounds > 1
    assert pairs(log) == sorted((offset, key, value) for key, (offset, value) in last.items())
