"""Tests the paths of failure domains."""

from __future__ import annotations

import pytest

from klamm.failure_domains import crowding, level_names, nearness, shared_levels


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [
        ("a", "a", 1),
        ("a", "b", 0),
        ("dc1/host7", "dc1/host7", 2),
        ("dc1/host7", "dc1/host8", 1),
        ("dc1/host7", "dc2/host7", 0),
        ("dc1", "dc1/host7", 1),
        ("dc1", "dc10", 0),
        ("dc1/row2/host7", "dc1/row2/host8", 2),
    ],
)
def test_paths_share_levels_from_the_largest_domain_on(one: str, other: str, shared: int) -> None:
    assert shared_levels(one, other) == shared_levels(other, one) == shared


def test_the_own_rack_is_nearest_then_the_longest_common_path() -> None:
    racks = ["dc1/row2/host7", "dc1/row2/host8", "dc1/row3/host1", "dc2/row2/host7", "", "dc1/row2"]
    by_nearness = sorted(racks, key=lambda rack: nearness("dc1/row2/host7", rack), reverse=True)
    assert by_nearness[0] == "dc1/row2/host7"
    assert set(by_nearness[1:3]) == {"dc1/row2/host8", "dc1/row2"}
    assert by_nearness[3] == "dc1/row3/host1"
    assert [nearness("dc1/row2/host7", rack) for rack in by_nearness[4:]] == [0, 0]
    assert nearness("", "") == 0


def test_a_place_on_an_unused_host_is_less_crowded_than_any_other() -> None:
    others = ["dc1/a", "dc2/b"]
    places = ["dc1/a", "dc1/c", "dc3/d"]
    assert min(places, key=lambda rack: crowding(rack, others)) == "dc3/d"
    assert min(places[:2], key=lambda rack: crowding(rack, others)) == "dc1/c"
    assert crowding("dc1/a", others) == (1, 1, 1)
    assert crowding("", ["", ""]) == (2, 2)


def test_the_domains_of_a_server_are_named_by_their_whole_paths() -> None:
    assert level_names("dc1/row2/host7") == ["dc1", "dc1/row2", "dc1/row2/host7"]
    assert level_names("") == [""]
