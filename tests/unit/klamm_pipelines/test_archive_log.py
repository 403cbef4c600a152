"""Tests the versions of an archive: which files count, and which writers are refused."""

from __future__ import annotations

import pytest

from klamm_pipelines.archive_log import (
    Advance,
    ArchiveChange,
    ArchiveConflictError,
    ArchiveContents,
    ArchivedFile,
    SourcePartition,
    decode_change,
    decode_contents,
    encode_change,
    encode_contents,
    plan_compactions,
)

SOURCE = SourcePartition("orders", "id", 0)


def file(path: str, *, size_bytes: int = 1, hour: str = "09", topic_id: str = "id") -> ArchivedFile:
    return ArchivedFile(
        path=path, topic="orders", topic_id=topic_id, date="2026-01-31", hour=hour, rows=3, size_bytes=size_bytes
    )


def added(path: str, start_offset: int, end_offset: int) -> ArchiveChange:
    advance = Advance(source=SOURCE, start_offset=start_offset, end_offset=end_offset)
    return ArchiveChange(time_ms=1, add=(file(path),), advance=(advance,))


def test_a_batch_that_runs_again_is_refused_by_the_archive():
    once = ArchiveContents().after(added("a", 0, 10))
    with pytest.raises(ArchiveConflictError, match="orders-0 is archived up to offset 10, not 0"):
        once.after(added("b", 0, 10))
    assert once.after(added("b", 10, 12)).ends == {SOURCE: 12}


def test_a_topic_that_was_created_again_is_archived_from_offset_0():
    advance = Advance(source=SourcePartition("orders", "another", 0), start_offset=0, end_offset=4)
    contents = ArchiveContents().after(added("a", 0, 10)).after(ArchiveChange(time_ms=1, advance=(advance,)))
    assert sorted(contents.ends.values()) == [4, 10]


def test_a_compaction_replaces_its_files_in_one_version_and_cannot_run_twice():
    contents = ArchiveContents().after(added("a", 0, 10)).after(added("b", 10, 20))
    compaction = ArchiveChange(time_ms=7, add=(file("ab"),), remove=("a", "b"))
    after = contents.after(compaction)
    assert (list(contents.files), list(after.files)) == (["a", "b"], ["ab"])
    assert after.removed == {"a": 7, "b": 7}
    assert after.ends == contents.ends
    with pytest.raises(ArchiveConflictError, match="a is no longer in the archive"):
        after.after(compaction)
    assert after.after(ArchiveChange(time_ms=8, forget=("a",))).removed == {"b": 7}


def test_archive_changes_and_contents_survive_a_round_trip():
    change = added("a", 0, 10)
    assert decode_change(encode_change(change)) == change
    contents = ArchiveContents().after(change).after(ArchiveChange(time_ms=2, remove=("a",)))
    assert decode_contents(encode_contents(contents)) == contents


def test_only_hours_with_enough_small_files_are_compacted():
    few = [file(f"few-{number}", hour="01") for number in range(3)]
    many = [file(f"many-{number}", hour="02") for number in range(4)]
    large = [file(f"large-{number}", hour="02", size_bytes=100) for number in range(4)]
    (plan,) = plan_compactions([*few, *many, *large], target_bytes=100, files_min=4)
    assert (plan.files, plan.file_count) == (tuple(many), 1)


def test_an_hour_larger_than_one_file_is_compacted_to_several():
    (plan,) = plan_compactions([file(str(n), size_bytes=60) for n in range(5)], target_bytes=100, files_min=2)
    assert plan.file_count == 3


def test_files_of_a_topic_and_its_recreation_are_not_compacted_together():
    files = [file("a"), file("b", topic_id="another")]
    assert plan_compactions(files, target_bytes=100, files_min=2) == []
