"""Tests that the files a crash left beside live segments are removed or put in place."""

from __future__ import annotations

from pathlib import Path

from klamm_broker.log.partition.leftovers import sweep_leftovers
from tests.support.partition_logs import fill


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir()) if path.is_file()}


def swapped(harness, suffix: str, batches: bytes, base: int = 0) -> None:
    for kind, content in ((".log", batches), (".index", b""), (".timeindex", b"")):
        Path(f"{harness.path(base, kind)}{suffix}").write_bytes(content)


def test_deleted_cleaned_and_temporary_files_are_removed(harness, make_batch) -> None:
    log = harness.open()
    fill(log, make_batch, 20, records=2)
    log.close()
    before = files(harness.directory)
    swapped(harness, ".deleted", b"x")
    swapped(harness, ".cleaned", b"x")
    (harness.directory / "leader-epoch-checkpoint.tmp").write_text("0\n")
    harness.open(clean=True).close()
    assert files(harness.directory) == before


def test_a_finished_swap_takes_the_place_of_the_segments_it_covers(harness, make_batch, read_all) -> None:
    log = harness.open()
    fill(log, make_batch, 20, records=2)
    second, third = log.segments.base_offsets[1:3]
    log.close()
    compacted = make_batch(1, base_offset=0, last_offset_delta=third - 1, offset_deltas=[0])
    swapped(harness, ".swap", compacted)
    log = harness.open(clean=True)
    assert log.segments.base_offsets[:2] == (0, third)
    assert not harness.path(second).exists()
    assert log.reader.read(1, 10**6).records.startswith(compacted)
    log.check_invariants()


def test_a_swap_of_an_unfinished_operation_is_removed(harness, make_batch) -> None:
    log = harness.open()
    fill(log, make_batch, 20, records=2)
    log.close()
    before = files(harness.directory)
    swapped(harness, ".swap", make_batch(1, base_offset=5), base=5)
    swapped(harness, ".cleaned", b"", base=3)
    harness.open(clean=True).close()
    assert files(harness.directory) == before


def test_other_files_are_left_alone(harness) -> None:
    harness.directory.mkdir()
    (harness.directory / "notes.log").write_text("mine")
    assert sweep_leftovers(harness.disk, str(harness.directory)) == []
    assert (harness.directory / "notes.log").read_text() == "mine"
