"""Tests the line of characters that shows a lag over time."""

from __future__ import annotations

from klamm_cli.text.sparkline import sparkline


def test_the_greatest_value_has_the_highest_bar() -> None:
    assert sparkline([0, 7, 14, 7]) == "▁▅█▅"


def test_values_of_nothing_are_flat() -> None:
    assert sparkline([0, 0]) == "▁▁"
    assert sparkline([]) == ""
