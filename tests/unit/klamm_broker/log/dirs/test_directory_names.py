"""Tests which names of directories belong to partitions."""

from __future__ import annotations

import pytest

from klamm_broker.log.dirs.directory_names import parse_directory_name


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("orders-3", ("orders", 3)),
        ("a-b.c_d-0", ("a-b.c_d", 0)),
        ("orders", None),
        ("orders-", None),
        ("-3", None),
        ("orders-3.abc-delete", None),
        ("lost+found", None),
    ],
)
def test_only_names_of_partition_directories_are_parsed(name, expected) -> None:
    assert parse_directory_name(name) == expected
