"""Tests the combinations of settings that `klamm perf` measures."""

from __future__ import annotations

import pytest

from klamm.errors import ConfigError
from klamm_cli.perf.matrix import CODECS, Cell, parse_cells

ONE = {"acks": "all", "batch_sizes": "16384", "compression": "none", "fsync": "no"}


def test_every_combination_is_a_cell_and_fsync_changes_last():
    cells = parse_cells(acks="all,1", batch_sizes="16384,262144", compression="none, zstd", fsync="no,yes")
    assert len(cells) == 16
    assert [cell.compression for cell in cells[:4]] == ["none", "zstd", "none", "zstd"]
    assert [cell.fsync for cell in cells] == [False] * 8 + [True] * 8


def test_a_value_that_is_named_twice_is_measured_once():
    assert parse_cells(**{**ONE, "acks": "all,all"}) == [
        Cell(acks="all", batch_size=16_384, compression="none", fsync=False)
    ]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("acks", "-1"),
        ("acks", ""),
        ("batch_sizes", "64k"),
        ("batch_sizes", "-1"),
        ("batch_sizes", "\u0661"),
        ("compression", "brotli"),
        ("compression", "none,"),
        ("fsync", "true"),
    ],
)
def test_an_unknown_value_is_named_with_its_option(option, value):
    with pytest.raises(ConfigError) as caught:
        parse_cells(**{**ONE, option: value})
    assert str(caught.value).startswith(f"--{option.replace('_', '-').replace('sizes', 'size')} ")
    assert repr(value.rpartition(",")[2]) in str(caught.value)


def test_a_cell_has_the_settings_of_a_producer():
    (cell,) = parse_cells(**{**ONE, "fsync": "yes", "compression": CODECS[-1]})
    assert cell.producer_settings == {"acks": "all", "batch.size": 16_384, "compression.type": "zstd"}
    assert cell.describe() == "acks=all, batch.size=16384, zstd, fsync"
