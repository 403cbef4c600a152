"""Tests the aborted transactions of a segment.

Lost entries are kept in memory, and damaged entries count as missing.
"""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from klamm_broker.log.segment.aborted_transactions import AbortedTransactions
from klamm_broker.log.segment.segment_files import TRANSACTION_INDEX_SUFFIX, SegmentFiles
from klamm_broker.log.segment.transaction_index import AbortedTransaction
from klamm_server.runtime.disk import Disk

ENTRIES = [AbortedTransaction(producer_id, 10 * producer_id, 10 * producer_id + 5, 10) for producer_id in (1, 2, 3)]


def files_in(path: Path, disk: Disk | None = None) -> SegmentFiles:
    return SegmentFiles(disk or Disk(), str(path), 0, "")


@pytest.fixture
def index_path(tmp_path: Path) -> Path:
    """Writes the index of a segment with three entries and returns its path."""
    written = AbortedTransactions(files_in(tmp_path))
    for entry in ENTRIES:
        written.append(entry)
    written.write()
    return Path(files_in(tmp_path).path(TRANSACTION_INDEX_SUFFIX))


def test_a_segment_without_aborted_transactions_has_no_index_file(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    AbortedTransactions(files).write()
    assert list(tmp_path.iterdir()) == []
    assert not any(path.endswith(TRANSACTION_INDEX_SUFFIX) for path in files.index_paths)


def test_dropped_entries_of_aborted_transactions_are_loaded_from_the_file_again(
    tmp_path: Path, index_path: Path
) -> None:
    files = files_in(tmp_path)
    loaded = AbortedTransactions(files)
    for _ in range(2):
        loaded.load()
        assert loaded.between(0, 100)[0] == ENTRIES
        loaded.drop()
        assert loaded.count == 3
        assert loaded.between(0, 100)[0] == []
    assert str(index_path) in files.index_paths


def test_entries_that_a_full_disk_refused_stay_in_memory_until_they_are_written(tmp_path: Path, faulty_disk) -> None:
    aborted = AbortedTransactions(files_in(tmp_path, faulty_disk))
    aborted.append(ENTRIES[0])
    faulty_disk.room = 10
    with pytest.raises(OSError, match="No space"):
        aborted.write()
    aborted.drop()
    aborted.load()
    assert aborted.has_unwritten
    aborted.trim()
    faulty_disk.room = None
    aborted.append(ENTRIES[1])
    aborted.write()
    assert not aborted.has_unwritten
    again = AbortedTransactions(files_in(tmp_path))
    again.load()
    assert again.between(0, 100)[0] == ENTRIES[:2]


def test_a_damaged_index_counts_as_incomplete_until_all_entries_are_rebuilt(tmp_path: Path, index_path: Path) -> None:
    index_path.write_bytes(index_path.read_bytes()[:-1])
    aborted = AbortedTransactions(files_in(tmp_path))
    aborted.load()
    assert aborted.is_lacking
    with pytest.raises(OSError, match="damaged") as raised:
        aborted.between(0, 100)
    assert raised.value.errno == errno.EIO
    aborted.trim()
    assert index_path.stat().st_size == 3 * 34 - 1, "the next start has to see it, too"
    aborted.begin()
    assert (aborted.count, index_path.stat().st_size) == (0, 0)
    for entry in ENTRIES:
        aborted.append(entry)
    aborted.write()
    assert aborted.between(0, 100)[0] == ENTRIES


def test_an_index_file_that_lost_entries_since_its_load_counts_as_incomplete(tmp_path: Path, index_path: Path) -> None:
    aborted = AbortedTransactions(files_in(tmp_path))
    aborted.load()
    aborted.drop()
    index_path.write_bytes(index_path.read_bytes()[:34])
    aborted.load()
    assert aborted.is_lacking


@pytest.mark.parametrize(("offset", "left"), [(100, 3), (35, 2), (16, 1), (15, 0)])
def test_truncation_removes_later_entries_from_the_transaction_index_file(
    tmp_path: Path, index_path: Path, offset: int, left: int
) -> None:
    aborted = AbortedTransactions(files_in(tmp_path))
    aborted.load()
    aborted.truncate_to(offset)
    aborted.check_invariants(offset)
    assert (aborted.count, index_path.stat().st_size) == (left, 34 * left)
