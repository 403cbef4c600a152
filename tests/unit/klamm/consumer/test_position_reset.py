"""Tests the text and fields of a reset position."""

from __future__ import annotations

import pytest

from klamm.consumer.position_reset import LostPosition, PositionReset
from klamm.model import TopicPartition


@pytest.mark.parametrize(("old", "new", "skipped"), [(100, 8_100, 8_000), (100, 100, 0), (100, 40, 0)])
def test_only_a_reset_to_a_higher_offset_skips_records(old, new, skipped):
    assert PositionReset(TopicPartition("t", 0), "g", old, 0, new, new).records_skipped == skipped


@pytest.mark.parametrize(
    ("lost", "beyond"),
    [(LostPosition(5, 7, 9), False), (LostPosition(10, 7, 9), True), (LostPosition(5), False)],
)
def test_is_beyond_the_end_is_true_only_above_the_log_end(lost, beyond):
    assert lost.is_beyond_the_end == beyond


def test_log_bounds_that_the_broker_did_not_send_are_shown_as_unknown():
    text = str(PositionReset(TopicPartition("t", 0), None, 9, -1, -1, 4))
    assert "the log starts at an unknown offset and ends at an unknown offset" in text
