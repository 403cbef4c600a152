"""Tests amounts as people read them."""

from __future__ import annotations

import pytest

from klamm_cli.text.amounts import duration, in_bytes, record_count


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (3 * 1024**3, "3.0 GiB"), (2e18, "1818989.4 TiB")],
)
def test_bytes_have_a_unit(count: float, text: str) -> None:
    assert in_bytes(count) == text


def test_one_record_is_no_plural() -> None:
    assert [record_count(count) for count in (0, 1, 12_345)] == ["0 records", "1 record", "12,345 records"]


@pytest.mark.parametrize(
    ("time_ms", "text"),
    [
        (0, "0.0 s"),
        (340, "0.3 s"),
        (12_000, "12 s"),
        (240_000, "4 min"),
        (5_999_000, "100 min"),
        (9_000_000, "2.5 h"),
        (3 * 86_400_000, "3.0 d"),
    ],
)
def test_a_length_of_time_has_one_unit(time_ms, text):
    assert duration(time_ms) == text
