"""Tests for which user a waiting request takes a place, and which requests count as servers'."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from klamm.acls import ANONYMOUS
from klamm.model import GROUP_METADATA_TOPIC
from klamm_broker.handlers.parkers import parker_of, server
from klamm_broker.purgatory.purgatory import Parker
from klamm_server.metadata.acl_index import AclIndex
from klamm_server.security.acls.authorizer import StandardAuthorizer
from klamm_server.security.session import CALLER, Session

ORDERS = "orders"
OFFSETS = GROUP_METADATA_TOPIC


@pytest.fixture
def caller(request: pytest.FixtureRequest) -> Iterator[None]:
    authorizer = StandardAuthorizer(super_users=[], allow_everyone_if_no_acl_found=False)
    token = CALLER.set(Session(authorizer, AclIndex, request.param, "10.0.0.7"))
    yield
    CALLER.reset(token)


@pytest.mark.parametrize(
    ("host", "topics", "parker"),
    [
        ("10.0.0.1", [ORDERS], Parker("10.0.0.1")),
        ("2001:db8::1:2:3:4", [ORDERS], Parker("2001:db8::/64")),
        ("10.0.0.1", [OFFSETS, ORDERS], Parker("10.0.0.1")),
        ("10.0.0.1", [OFFSETS], Parker("10.0.0.1", is_server=True)),
    ],
)
def test_without_a_session_the_user_is_the_address_and_internal_topics_are_for_servers(
    host: str, topics: list[str], parker: Parker
) -> None:
    assert parker_of(lambda: host, topics) == parker


@pytest.mark.parametrize(
    ("caller", "user"), [("User:alice", "User:alice"), (ANONYMOUS, "10.0.0.7")], indirect=["caller"]
)
def test_a_client_with_a_session_is_no_server_even_if_it_reads_internal_topics(caller: None, user: str) -> None:
    assert parker_of(lambda: "10.0.0.1", [OFFSETS]) == Parker(user)


def test_a_request_of_servers_takes_a_place_of_servers() -> None:
    assert server(lambda: "10.0.0.1") == Parker("10.0.0.1", is_server=True)
