"""Tests the indexes of a segment: their entries, and files that are damaged, missing or from another log."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest

from klamm.records.errors import CorruptBatchError
from klamm.records.header import iter_headers
from klamm_broker.log.segment.offset_index import CorruptIndexError
from tests.support.segments import new_segment


def test_index_entries_are_of_batches_an_interval_apart(filled) -> None:
    segment, batches = filled
    segment.seal()
    data = Path(segment.files.path(".index")).read_bytes()
    entries = [
        (int.from_bytes(data[i : i + 4], "big"), int.from_bytes(data[i + 4 : i + 8], "big"))
        for i in range(0, len(data), 8)
    ]
    starts = {position: header.last_offset for position, header in iter_headers(b"".join(batches))}
    assert entries
    assert all(starts[position] == offset for offset, position in entries)
    positions = [0] + [position for _, position in entries]
    assert all(after - before > 200 for before, after in itertools.pairwise(positions))
    assert segment.files.size_bytes - positions[-1] <= 200 + 2 * max(map(len, batches))


def damage_nothing(path: Path) -> None:
    pass


def missing(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def odd_size(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def lost_tail(path: Path) -> None:
    entry = 8 if path.suffix == ".index" else 12
    path.write_bytes(path.read_bytes()[:entry])


def zeros(path: Path) -> None:
    path.write_bytes(bytes(len(path.read_bytes())))


def padded(path: Path) -> None:
    path.write_bytes(path.read_bytes() + bytes(8 * 12 * 10))


def garbage(path: Path) -> None:
    size = len(path.read_bytes())
    path.write_bytes(random.Random(3).randbytes(size))


def of_another_log(path: Path) -> None:
    """Writes well-formed indexes from a log whose records are larger and later."""
    data = bytearray(path.read_bytes())
    entry = 8 if path.suffix == ".index" else 12
    for i in range(0, len(data), entry):
        data[i + entry - 1] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    "damage",
    [damage_nothing, missing, empty, odd_size, lost_tail, zeros, padded, garbage, of_another_log],
)
@pytest.mark.parametrize("suffixes", [(".index",), (".timeindex",), (".index", ".timeindex")])
def test_damaged_indexes_are_rebuilt_from_the_log(filled, damage, suffixes) -> None:
    segment, batches = filled
    segment.seal()
    whole = {suffix: Path(segment.files.path(suffix)).read_bytes() for suffix in (".index", ".timeindex")}
    segment.release()
    for suffix in suffixes:
        damage(Path(segment.files.path(suffix)))
    again = new_segment(Path(segment.files.directory))
    if not again.attach(60):
        assert damage is not damage_nothing
        again.open()
        again.rebuild_indexes()
    again.open()
    again.seal()
    assert Path(again.files.path(".index")).read_bytes() == whole[".index"]
    if damage not in (lost_tail, of_another_log) or ".timeindex" not in suffixes:
        # Nothing in the log contradicts these two entries. A time index is only a hint where to start a search.
        assert Path(again.files.path(".timeindex")).read_bytes() == whole[".timeindex"]
    assert again.next_offset == 60
    assert again.indexes.largest.timestamp_ms == 1_570
    for offset in range(60):
        _, header = again.reader.find_batch(offset)
        assert header.base_offset <= offset <= header.last_offset
    again.check_invariants()
    again.release()
    assert batches


def test_an_index_that_is_damaged_while_in_use_is_detected(filled) -> None:
    segment, _ = filled
    segment.seal()
    segment.release()
    path = Path(segment.files.path(".index"))
    data = bytearray(path.read_bytes())
    assert len(data) >= 24
    data[8 + 7] += 1
    path.write_bytes(data)
    segment.open()
    entry_offset = int.from_bytes(data[8:12], "big")
    with pytest.raises((CorruptIndexError, CorruptBatchError)):
        segment.reader.find_batch(entry_offset)
    segment.rebuild_indexes()
    assert segment.reader.find_batch(entry_offset) is not None


def test_attach_finds_the_size_and_the_largest_timestamp_without_opening_the_segment(filled) -> None:
    segment, batches = filled
    segment.seal()
    segment.release()
    again = new_segment(Path(segment.files.directory))
    assert again.attach(60)
    assert (again.files.size_bytes, again.indexes.largest) == (sum(map(len, batches)), (1_570, 59))
    assert not again.files.is_open


def test_a_full_disk_does_not_keep_a_segment_from_opening(filled, faulty_disk) -> None:
    segment, _ = filled
    segment.release()
    for suffix in (".index", ".timeindex"):
        Path(segment.files.path(suffix)).unlink(missing_ok=True)
    faulty_disk.room = 0
    again = new_segment(Path(segment.files.directory), faulty_disk)
    again.open()
    assert again.next_offset == 60
    assert again.reader.find_batch(42) is not None
    faulty_disk.room = None
    again.write_indexes()
    assert Path(again.files.path(".index")).stat().st_size > 0
    again.release()
