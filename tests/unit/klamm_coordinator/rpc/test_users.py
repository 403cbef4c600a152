"""Tests for whom the memory of a request counts: a principal, or the address of a client without a login."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from klamm.acls import ANONYMOUS
from klamm_coordinator.rpc.users import user_of
from klamm_server.metadata.acl_index import AclIndex
from klamm_server.security.acls.authorizer import StandardAuthorizer
from klamm_server.security.session import CALLER, Session

PEER = SimpleNamespace(peer=lambda: "ipv4:10.0.0.9:50321")


@pytest.mark.parametrize(
    ("client_host", "user"),
    [
        ("/10.0.0.1", "10.0.0.1"),
        ("", "10.0.0.9"),
        ("/2001:db8::17", "2001:db8::/64"),
        ("/somewhere", "somewhere"),
    ],
)
def test_without_an_authorizer_the_address_counts(client_host, user):
    assert user_of(PEER, client_host) == user


@pytest.mark.parametrize(("principal", "user"), [("User:alice", "User:alice"), (ANONYMOUS, "10.0.0.5")])
def test_with_an_authorizer_the_principal_counts_if_there_was_a_login(principal, user):
    session = Session(
        StandardAuthorizer(super_users=(), allow_everyone_if_no_acl_found=False), AclIndex, principal, "10.0.0.5"
    )
    token = CALLER.set(session)
    try:
        assert user_of(PEER, "/1.2.3.4") == user
    finally:
        CALLER.reset(token)
