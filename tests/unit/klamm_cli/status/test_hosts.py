"""Tests which brokers are on one host."""

from __future__ import annotations

from klamm_cli.status.hosts import hosts_of, ranges
from tests.support.status_world import server


def test_consecutive_ids_are_written_as_a_range() -> None:
    assert ranges([]) == []
    assert ranges([3, 1, 2, 7, 9, 10]) == ["1-3", "7", "9-10"]


def test_a_host_is_a_failure_domain_and_an_address() -> None:
    brokers = [
        server(1, host="a", rack="dc1/a"),
        server(2, host="b", rack="dc1/b"),
        server(3, host="a", rack="dc1/a"),
        server(4, host="c", rack="rack-1"),
        server(5, host="d", rack="rack-1"),
    ]
    assert [host.ids for host in hosts_of(brokers)] == ["1,3", "2", "4", "5"]


def test_brokers_without_a_rack_are_not_joined() -> None:
    assert [host.ids for host in hosts_of([server(1), server(2)])] == ["1", "2"]
