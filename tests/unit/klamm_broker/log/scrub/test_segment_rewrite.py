"""Tests repair of a damaged segment: all original bytes return, or nothing is written and the damage is reported."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.records.encoder import encode_batch
from klamm_broker.log.files.cold_file import ColdFile
from klamm_broker.log.files.leader_epochs import EpochEntry
from klamm_broker.log.scrub.segment_check import BatchRules, DamagedRange
from klamm_broker.log.scrub.segment_rewrite import ReplicaRefused, Rewritten, SegmentRewrite
from klamm_server.runtime.disk import Disk
from tests.support.sealed_segments import BASE_OFFSET, CONFIG, SealedSegment, random_segment, write_segment

SEEDS = st.integers(0, 2**32 - 1)
FETCH_BYTES = 300


def repair(directory: Path, sealed: SealedSegment, ranges: Iterable[DamagedRange], replica: SealedSegment) -> Rewritten:
    """Repairs the files in `directory` with the records that `replica` returns. Raises ReplicaRefused."""
    path = directory / f"{BASE_OFFSET:020d}.log"
    rewrite = SegmentRewrite(
        Disk(),
        str(directory),
        ColdFile(Disk(), str(path), pace=lambda _: None),
        sealed.bounds,
        BatchRules(sealed.bounds, sealed.epochs),
        config=CONFIG,
        modified_ms=1_000,
        transactions=b"",
        pace=lambda _: None,
    )
    try:
        rewrite.open()
        for damaged in ranges:
            wanted: int | None = rewrite.begin_range(damaged)
            while wanted is not None and (records := fetch(replica, wanted)):
                wanted = rewrite.take(records)
            rewrite.end_range()
        return rewrite.finish()
    except ReplicaRefused:
        rewrite.discard()
        raise


def fetch(replica: SealedSegment, offset: int) -> memoryview:
    """Returns whole batches, at least one."""
    records = replica.records(offset)
    start = len(replica.data) - len(records)
    ends = [*replica.positions, len(replica.data)]
    limit = max((end for end in ends if start < end <= start + FETCH_BYTES), default=None)
    if limit is None:
        limit = min((end for end in ends if end > start), default=start)
    return records[: limit - start]


def struck(rng: random.Random, data: bytes) -> bytes:
    """Returns the data with a few flipped bytes, a block of zeros, or a lost end."""
    damaged = bytearray(data)
    kind = rng.randrange(4)
    if kind == 0:
        begin = rng.randrange(len(damaged))
        end = min(len(damaged), begin + rng.randrange(1, 400))
        damaged[begin:end] = bytes(end - begin)
    elif kind == 1:
        return data[: rng.randrange(len(data))]
    else:
        for _ in range(rng.randrange(1, 6)):
            damaged[rng.randrange(len(damaged))] ^= rng.randrange(1, 256)
    return bytes(damaged)


@settings(max_examples=50, deadline=None)
@given(seed=SEEDS, is_gapless=st.booleans())
def test_a_repair_restores_the_original_segment_or_is_refused(seed: int, is_gapless: bool) -> None:
    rng = random.Random(seed)
    sealed = random_segment(rng, batch_count=20, is_gapless=is_gapless)
    data = struck(rng, sealed.data)
    verdict = sealed.check(data)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        path = write_segment(directory, sealed, data)
        try:
            rewritten = repair(directory, sealed, verdict.ranges, sealed)
        except ReplicaRefused:
            # A refusal is allowed only if the checksum cannot identify the original batch.
            assert not is_gapless
            assert verdict.ranges
            assert path.read_bytes() == data
            assert not list(directory.glob("*.cleaned"))
            return
        result = Path(rewritten.segment.files.path()).read_bytes()
        if is_gapless or not verdict.is_sound:
            expected = sealed.data
            if not is_gapless and result != expected:
                # The damage also hit an offset beside a gap, which no check can detect.
                assert len(result) == len(expected)
                return
            assert result == expected
        for suffix in (".index", ".timeindex"):
            assert Path(f"{path.with_suffix(suffix)}.cleaned").exists()


@settings(max_examples=12, deadline=None)
@given(seed=SEEDS, is_gapless=st.booleans())
def test_a_replica_with_damage_in_the_same_place_is_refused_for_repair(seed: int, is_gapless: bool) -> None:
    rng = random.Random(seed)
    sealed = random_segment(rng, is_gapless=is_gapless)
    at = rng.choice(sealed.positions) + rng.randrange(21, 60)
    data = sealed.data[:at] + bytes([sealed.data[at] ^ 1]) + sealed.data[at + 1 :]
    replica = SealedSegment(sealed.data, sealed.end_offset, sealed.epochs, is_gapless)
    replica.data = data[:at] + bytes([data[at] ^ 6]) + data[at + 1 :]
    with tempfile.TemporaryDirectory() as name:
        write_segment(Path(name), sealed, data)
        with pytest.raises(ReplicaRefused, match="the replica's bytes are damaged too"):
            repair(Path(name), sealed, sealed.check(data).ranges, replica)


def one_batch(value: bytes, *, epoch: int = 0) -> bytes:
    return encode_batch([(1, b"key", value, ())], base_offset=BASE_OFFSET, partition_leader_epoch=epoch)


@pytest.mark.parametrize("is_gapless", [True, False])
def test_a_replicas_batch_of_another_length_is_refused_for_repair(tmp_path: Path, is_gapless: bool) -> None:
    """Compaction on another replica, or a log with other records, can have such a batch."""
    tail = encode_batch([(1, b"key", b"tail", ())], base_offset=BASE_OFFSET + 1, partition_leader_epoch=0)
    sealed = SealedSegment(one_batch(b"value") + tail, BASE_OFFSET + 2, [EpochEntry(0, 0)], is_gapless)
    other = SealedSegment(one_batch(b"other value") + tail, BASE_OFFSET + 2, [EpochEntry(0, 0)], is_gapless)
    data = sealed.data[:70] + b"\xff" + sealed.data[71:]
    write_segment(tmp_path, sealed, data)
    with pytest.raises(ReplicaRefused, match="compacted differently"):
        repair(tmp_path, sealed, sealed.check(data).ranges, other)


def test_a_compacted_log_accepts_no_other_batch_of_the_same_length_for_repair(tmp_path: Path) -> None:
    sealed = SealedSegment(one_batch(b"value"), BASE_OFFSET + 1, [EpochEntry(0, 0)], False)
    other = SealedSegment(one_batch(b"eulav"), BASE_OFFSET + 1, [EpochEntry(0, 0)], False)
    data = sealed.data[:70] + b"\xff" + sealed.data[71:]
    write_segment(tmp_path, sealed, data)
    with pytest.raises(ReplicaRefused, match="may differ from the lost batch"):
        repair(tmp_path, sealed, sealed.check(data).ranges, other)
    assert repair(tmp_path, sealed, sealed.check(data).ranges, sealed).changed_bytes == 1


def test_a_damaged_checksum_is_repaired_in_a_compacted_log_too(tmp_path: Path) -> None:
    sealed = SealedSegment(one_batch(b"value"), BASE_OFFSET + 1, [EpochEntry(0, 0)], False)
    data = sealed.data[:17] + bytes(4) + sealed.data[21:]
    write_segment(tmp_path, sealed, data)
    assert repair(tmp_path, sealed, sealed.check(data).ranges, sealed).changed_bytes == 4


def test_a_repair_from_a_replica_with_the_same_bytes_changes_nothing(tmp_path: Path) -> None:
    """The epochs of this log were wrong, or the log was compacted before this replica was created."""
    sealed = SealedSegment(one_batch(b"value", epoch=7), BASE_OFFSET + 3, [EpochEntry(0, 0)], True)
    write_segment(tmp_path, sealed)
    verdict = sealed.check(sealed.data)
    assert len(verdict.ranges) == 1
    rewritten = repair(tmp_path, sealed, verdict.ranges, sealed)
    assert rewritten.changed_bytes == 0


def test_a_replicas_batch_of_another_leader_epoch_is_refused_for_repair(tmp_path: Path) -> None:
    sealed = SealedSegment(one_batch(b"value", epoch=0), BASE_OFFSET + 1, [EpochEntry(0, 0)], True)
    other = SealedSegment(one_batch(b"eulav", epoch=1), BASE_OFFSET + 1, [EpochEntry(0, 0)], True)
    data = sealed.data[:70] + b"\xff" + sealed.data[71:]
    write_segment(tmp_path, sealed, data)
    with pytest.raises(ReplicaRefused, match="leader epoch 1"):
        repair(tmp_path, sealed, sealed.check(data).ranges, other)


def test_a_repair_is_refused_if_the_replica_lacks_the_damaged_batch(tmp_path: Path) -> None:
    sealed = random_segment(random.Random(4))
    short = SealedSegment(sealed.data[: sealed.positions[5]], sealed.end_offset, sealed.epochs, True)
    at = sealed.positions[6] + 40
    data = sealed.data[:at] + bytes([sealed.data[at] ^ 9]) + sealed.data[at + 1 :]
    write_segment(tmp_path, sealed, data)
    with pytest.raises(ReplicaRefused, match="0 bytes for offsets"):
        repair(tmp_path, sealed, sealed.check(data).ranges, short)
