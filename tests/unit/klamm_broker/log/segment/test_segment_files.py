"""Tests the files of a segment."""

from __future__ import annotations

import errno

import pytest

from tests.support.segments import new_segment


def test_creation_that_fails_leaves_no_file(tmp_path, faulty_disk) -> None:
    segment = new_segment(tmp_path, faulty_disk)
    faulty_disk.errors["open"] = errno.ENOSPC
    faulty_disk.only_below = segment.files.path(".timeindex")
    with pytest.raises(OSError, match="No space"):
        segment.create()
    assert list(tmp_path.iterdir()) == []
