"""Tests the leader epoch cache against the epochs of a list of records, and its file."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm_broker.log.files.checkpoints import CheckpointError
from klamm_broker.log.files.leader_epochs import EpochEntry, LeaderEpochCache, LeaderEpochFile
from klamm_server.runtime.disk import Disk

runs = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 6)), max_size=8)
"""Steps of epoch and number of records in each."""


def build(steps: list[tuple[int, int]]) -> tuple[LeaderEpochCache, list[int]]:
    """Returns the cache of a log, and the epoch of each of its records."""
    cache, epochs, epoch = LeaderEpochCache(), [], 0
    for step, count in steps:
        epoch += step
        cache.assign(epoch, len(epochs))
        epochs += [epoch] * count
    return cache, epochs


@given(runs, st.integers(0, 30))
def test_end_offset_is_where_the_first_later_epoch_begins(steps: list[tuple[int, int]], asked: int) -> None:
    cache, epochs = build(steps)
    known = [epoch for epoch in epochs if epoch <= asked]
    if not epochs or asked > epochs[-1]:
        expected = (-1, -1)
    else:
        expected = (known[-1] if known else asked, len(known))
    assert cache.end_offset_for(asked, len(epochs)) == expected


@given(runs, st.integers(0, 60))
def test_the_epoch_of_an_offset_is_that_of_its_record(steps: list[tuple[int, int]], offset: int) -> None:
    cache, epochs = build(steps)
    expected = (epochs[offset] if offset < len(epochs) else epochs[-1]) if epochs else -1
    assert cache.epoch_for_offset(offset) == expected


@given(runs, st.integers(0, 60))
def test_truncation_from_the_end_drops_the_epochs_of_truncated_records(steps: list[tuple[int, int]], end: int) -> None:
    cache, epochs = build(steps)
    cache.truncate_from_end(end)
    cache.check_invariants()
    assert sorted({entry.epoch for entry in cache.entries}) == sorted(set(epochs[:end]))


@given(runs, st.integers(0, 60))
def test_truncation_from_the_start_keeps_the_epoch_of_the_first_record(
    steps: list[tuple[int, int]], start: int
) -> None:
    cache, epochs = build(steps)
    cache.truncate_from_start(start)
    cache.check_invariants()
    for offset in range(start, len(epochs)):
        assert cache.epoch_for_offset(offset) == epochs[offset]
    if epochs:
        assert cache.entries[0].start_offset == start if start else cache.entries[0].start_offset == 0


@pytest.mark.parametrize("epoch", [-1, -2, -(2**31)])
def test_an_undefined_epoch_has_no_end(epoch: int) -> None:
    assert build([])[0].end_offset_for(epoch, 3) == (-1, -1)
    assert build([(1, 3)])[0].end_offset_for(epoch, 3) == (-1, -1)


def test_a_new_epoch_drops_entries_with_a_later_epoch_or_offset() -> None:
    cache = LeaderEpochCache((EpochEntry(1, 0), EpochEntry(3, 10), EpochEntry(5, 20)))
    assert cache.assign(4, 15)
    assert cache.entries == ((1, 0), (3, 10), (4, 15))
    assert not cache.assign(4, 16)
    assert cache.assign(7, 15)
    assert cache.entries == ((1, 0), (3, 10), (7, 15))
    assert cache.latest_epoch == 7


def test_file_round_trip_in_kafkas_format(tmp_path: Path) -> None:
    file = LeaderEpochFile(Disk(), str(tmp_path))
    file.write(1, (EpochEntry(0, 0), EpochEntry(4, 17)))
    assert (tmp_path / "leader-epoch-checkpoint").read_text() == "0\n2\n0 0\n4 17\n"
    assert LeaderEpochFile(Disk(), str(tmp_path)).read().entries == ((0, 0), (4, 17))


def test_an_older_version_of_the_epoch_file_never_replaces_a_newer_one(tmp_path: Path) -> None:
    file = LeaderEpochFile(Disk(), str(tmp_path))
    file.write(5, (EpochEntry(1, 0),))
    file.write(4, (EpochEntry(1, 0), EpochEntry(2, 9)))
    assert file.read().entries == ((1, 0),)


@pytest.mark.parametrize("content", ["0\n2\n0 0\n", "1\n0\n", "", "0\n1\n0 x\n", "0\n1\n-1 0\n", "0\n1\n5\n"])
def test_a_damaged_epoch_file_is_an_error_that_names_it(tmp_path: Path, content: str) -> None:
    (tmp_path / "leader-epoch-checkpoint").write_text(content)
    with pytest.raises(CheckpointError, match="leader-epoch-checkpoint"):
        LeaderEpochFile(Disk(), str(tmp_path)).read()
