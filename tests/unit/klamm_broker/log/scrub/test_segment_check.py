"""Tests the check of a sealed segment: it finds any changed byte and nothing else."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.records.encoder import encode_batch
from klamm.records.header import read_header
from klamm_broker.log.files.leader_epochs import EpochEntry
from klamm_broker.log.scrub.segment_check import IndexFiles, check_segment
from tests.support.sealed_segments import BASE_OFFSET, SealedSegment, random_segment

SEEDS = st.integers(0, 2**32 - 1)


def flipped(data: bytes, at: int, mask: int) -> bytes:
    return data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :]


def batch_of(sealed: SealedSegment, at: int) -> int:
    """Returns the position of the batch that contains the byte."""
    return max(position for position in sealed.positions if position <= at)


@settings(max_examples=15, deadline=None)
@given(seed=SEEDS, is_gapless=st.booleans())
def test_an_undamaged_segment_is_sound(seed: int, is_gapless: bool) -> None:
    sealed = random_segment(random.Random(seed), is_gapless=is_gapless)
    verdict = sealed.check(sealed.data)
    assert verdict.is_sound, verdict


@settings(max_examples=70, deadline=None)
@given(seed=SEEDS, place=st.floats(0, 1, exclude_max=True), mask=st.integers(1, 255), in_header=st.booleans())
def test_any_changed_byte_of_a_log_without_gaps_is_found(seed: int, place: float, mask: int, in_header: bool) -> None:
    sealed = random_segment(random.Random(seed))
    at = int(place * len(sealed.data))
    if in_header:
        at = batch_of(sealed, at) + at % 21
    verdict = sealed.check(flipped(sealed.data, at, mask))
    (found,) = verdict.ranges
    assert found.position == batch_of(sealed, at)
    assert found.position <= at < found.end_position
    header = read_header(sealed.data, found.position)
    assert (found.first_offset, found.end_position) == (header.base_offset, found.position + header.size_bytes)
    assert found.end_offset == header.next_offset


@settings(max_examples=30, deadline=None)
@given(seed=SEEDS, place=st.floats(0, 1, exclude_max=True), mask=st.integers(1, 255))
def test_any_changed_byte_of_a_log_with_gaps_is_found_except_in_base_offsets(
    seed: int, place: float, mask: int
) -> None:
    sealed = random_segment(random.Random(seed), is_gapless=False)
    at = int(place * len(sealed.data))
    start = batch_of(sealed, at)
    verdict = sealed.check(flipped(sealed.data, at, mask))
    if at - start < 8:
        return
    assert any(one.position <= at < one.end_position for one in verdict.ranges), verdict


def test_a_changed_leader_epoch_of_a_batch_is_found_by_the_epoch_cache() -> None:
    sealed = random_segment(random.Random(5))
    for at in range(sealed.positions[3] + 12, sealed.positions[3] + 16):
        (found,) = sealed.check(flipped(sealed.data, at, 1)).ranges
        assert found.position == sealed.positions[3]
        assert "leader epoch" in found.reason


def test_leader_epochs_of_batches_before_the_log_start_are_not_checked() -> None:
    sealed = random_segment(random.Random(5))
    sealed.epochs = [EpochEntry(99, sealed.end_offset - 1)]
    view = memoryview(sealed.data)
    bounds = sealed.bounds._replace(log_start_offset=sealed.end_offset)
    assert check_segment(lambda at, size: view[at : at + size], bounds, sealed.epochs, sealed.index_files()).is_sound


def test_adjacent_damaged_batches_are_reported_as_one_range() -> None:
    sealed = random_segment(random.Random(8))
    first, second, third = sealed.positions[4:7]
    data = flipped(flipped(sealed.data, first + 70, 1), second + 9, 255)
    (found,) = sealed.check(data).ranges
    assert (found.position, found.end_position) == (first, third)
    assert found.first_offset == read_header(sealed.data, first).base_offset
    assert found.end_offset == read_header(sealed.data, third).base_offset


def test_a_block_of_zeros_is_one_damaged_range_and_the_check_continues_after_it() -> None:
    sealed = random_segment(random.Random(9), batch_count=40)
    begin, end = sealed.positions[10] + 5, sealed.positions[20] + 7
    data = sealed.data[:begin] + bytes(end - begin) + sealed.data[end:]
    (found,) = sealed.check(data).ranges
    assert (found.position, found.end_position) == (sealed.positions[10], sealed.positions[21])


def test_a_file_that_lost_its_end_is_damaged_from_the_batch_that_is_torn() -> None:
    sealed = random_segment(random.Random(10))
    (found,) = sealed.check(sealed.data[: sealed.positions[-2] + 30]).ranges
    assert (found.position, found.end_position) == (sealed.positions[-2], len(sealed.data))
    assert found.end_offset == sealed.end_offset


def test_a_log_without_gaps_that_ends_early_is_damaged_and_a_compacted_one_is_not() -> None:
    sealed = random_segment(random.Random(11))
    sealed.end_offset += 5
    (found,) = sealed.check(sealed.data).ranges
    assert (found.position, found.end_position) == (len(sealed.data), len(sealed.data))
    assert (found.first_offset, found.end_offset) == (sealed.end_offset - 5, sealed.end_offset)
    sealed.is_gapless = False
    assert sealed.check(sealed.data).is_sound


def test_a_batch_inside_a_record_is_no_batch_of_the_log() -> None:
    """If the length of the containing batch is damaged, no check can tell the two apart."""
    inner = encode_batch([(1, None, b"inner", ())], base_offset=BASE_OFFSET + 1, partition_leader_epoch=0)
    outer = [
        encode_batch([(1, None, inner * 3, ())], base_offset=BASE_OFFSET + number, partition_leader_epoch=0)
        for number in range(3)
    ]
    sealed = SealedSegment(b"".join(outer), BASE_OFFSET + 3, [EpochEntry(0, 0)], True)
    (found,) = sealed.check(flipped(sealed.data, sealed.positions[0] + 80, 1)).ranges
    assert found.end_position == sealed.positions[1]


# --- indexes


@settings(max_examples=30, deadline=None)
@given(seed=SEEDS, place=st.floats(0, 1, exclude_max=True), mask=st.integers(1, 255), of_times=st.booleans())
def test_any_changed_byte_of_an_index_is_found(seed: int, place: float, mask: int, of_times: bool) -> None:
    sealed = random_segment(random.Random(seed))
    files = sealed.index_files()
    data = files.times if of_times else files.offsets
    assert data
    at = int(place * len(data))
    if of_times and at % 12 >= 8:
        at -= 4  # another offset of the same batch is equivalent
    changed = flipped(data, at, mask)
    files = files._replace(times=changed) if of_times else files._replace(offsets=changed)
    assert verdict_on(sealed, files).indexes.keys() == {".timeindex" if of_times else ".index"}


@pytest.mark.parametrize("damaged", [None, b"", b"\x00" * 16, b"garbage"])
def test_a_missing_empty_or_invalid_index_is_reported_as_damaged(damaged: bytes | None) -> None:
    sealed = random_segment(random.Random(3))
    files = sealed.index_files()._replace(unindexed_bytes_max=150)
    assert verdict_on(sealed, files._replace(offsets=damaged)).indexes.keys() == {".index"}
    if damaged != bytes(16):
        assert verdict_on(sealed, files._replace(times=damaged)).indexes.keys() == {".timeindex"}


def test_a_time_index_that_lost_its_last_entry_is_reported_as_damaged() -> None:
    sealed = random_segment(random.Random(3))
    files = sealed.index_files()
    assert files.times is not None
    assert verdict_on(sealed, files._replace(times=files.times[:-12])).indexes.keys() == {".timeindex"}


def test_a_transaction_index_entry_without_an_abort_marker_in_the_log_is_damage() -> None:
    sealed = random_segment(random.Random(3))
    entry = b"\x00\x00" + b"".join(
        number.to_bytes(8, "big") for number in (7, BASE_OFFSET, BASE_OFFSET + 4, BASE_OFFSET)
    )
    files = sealed.index_files()._replace(transactions=entry, aborted_count=1)
    assert verdict_on(sealed, files).indexes.keys() == {".txnindex"}
    assert verdict_on(sealed, files._replace(transactions=None)).indexes.keys() == {".txnindex"}


def verdict_on(sealed: SealedSegment, files: IndexFiles):
    view = memoryview(sealed.data)
    return check_segment(lambda at, size: view[at : at + size], sealed.bounds, sealed.epochs, files)
