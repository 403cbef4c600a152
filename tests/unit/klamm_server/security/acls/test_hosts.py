"""Tests the hosts of access control lists: addresses, ranges, names."""

from __future__ import annotations

import pytest

from klamm.acl_rules import host_problem
from klamm_server.security.acls.hosts import host_matches, network_of


@pytest.mark.parametrize(
    ("acl_host", "host"),
    [
        ("*", "10.0.0.1"),
        ("10.0.0.1", "10.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("10.0.0.1", "::ffff:10.0.0.1"),
        ("10.0.0.0/8", "10.255.0.1"),
        ("10.0.0.0/8", "::ffff:10.1.2.3"),
        ("10.0.0.77/8", "10.1.2.3"),
        ("0.0.0.0/0", "192.0.2.1"),
        ("2001:db8::/32", "2001:db8:1::5"),
        ("10.0.0.5/32", "10.0.0.5"),
        ("localhost", "localhost"),
    ],
)
def test_an_acl_host_matches_its_address_or_range(acl_host: str, host: str) -> None:
    assert host_matches(acl_host, host)
    assert host_problem(acl_host) == ""


@pytest.mark.parametrize(
    ("acl_host", "host"),
    [
        ("10.0.0.1", "10.0.0.10"),
        ("10.0.0.0/8", "11.0.0.1"),
        ("0.0.0.0/0", "::1"),
        ("::/0", "10.0.0.1"),
        ("::/0", "::ffff:10.0.0.1"),
        ("2001:db8::/32", "2001:db9::5"),
        ("localhost", "127.0.0.1"),
        ("10.0.0.0/8", "localhost"),
        ("not-an-address/8", "10.0.0.1"),
        ("", "10.0.0.1"),
    ],
)
def test_an_acl_host_does_not_match_another_address(acl_host: str, host: str) -> None:
    assert not host_matches(acl_host, host)


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("10.0.0.7", "10.0.0.7"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("unix", "unix"),
    ],
)
def test_clients_of_one_ipv6_network_count_as_one(address: str, network: str) -> None:
    assert network_of(address) == network
