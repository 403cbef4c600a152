"""Tests that the checks of the workload "retention" find planted violations."""

from __future__ import annotations

import pytest

from tests.chaos.klammchaos.retention_checks import ReadRecords
from tests.support.violation import Violation

ACKNOWLEDGED = {(0, 0): 10, (0, 1): 11, (0, 2): 12, (1, 0): 13}


def reading() -> ReadRecords:
    records = ReadRecords("g")
    records.begin(0, 0)
    records.begin(1, 0)
    return records


def test_a_group_that_reads_everything_has_no_violations() -> None:
    records = reading()
    records.add(0, [(0, 10), (1, 11)])
    records.add(1, [(0, 13)])
    records.commit({0: 1, 1: 1})
    records.begin(0, 1)
    records.check_start(0, 1)
    records.add(0, [(1, 11), (2, 12)])
    records.check_complete(ACKNOWLEDGED)


def test_records_that_were_deleted_before_they_were_read_are_found() -> None:
    with pytest.raises(Violation, match="has not read partition 0 from 0 on, it starts at 2"):
        reading().check_start(0, 2)
    with pytest.raises(Violation, match="read offset 2 of partition 0 instead of 0"):
        reading().add(0, [(2, 12)])


def test_an_acknowledged_record_that_was_not_read_is_found() -> None:
    records = reading()
    records.add(0, [(0, 10), (1, 11)])
    records.add(1, [(0, 13)])
    with pytest.raises(Violation, match=r"has not read 1 acknowledged records: \[\(0, 2\)\]"):
        records.check_complete(ACKNOWLEDGED)


def test_a_lost_commit_and_a_changed_record_are_found() -> None:
    records = reading()
    records.add(0, [(0, 10)])
    records.commit({0: 1})
    with pytest.raises(Violation, match="had committed 1 in partition 0, and is at 0 now"):
        records.begin(0, 0)
    records = reading()
    records.add(0, [(0, 10)])
    records.begin(0, 0)
    with pytest.raises(Violation, match="was 10, and is 11 now"):
        records.add(0, [(0, 11)])
