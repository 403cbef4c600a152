"""Tests which calls take a place of which user, and until when."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from klamm.rpc.status import CallFailed, Status
from klamm.wire.service import Method
from klamm.wire.v1.broker_pb2 import MetadataRequest
from klamm.wire.v1.broker_rpc import BROKER, REPLICATION
from klamm.wire.v1.coordinator_pb2 import JoinGroupRequest
from klamm.wire.v1.coordinator_rpc import COORDINATOR
from klamm_server.metadata.acl_index import AclIndex
from klamm_server.rpc.call_limit import CallLimit
from klamm_server.security.acls.authorizer import StandardAuthorizer
from klamm_server.security.peer_principals import LOGGED_IN
from klamm_server.security.session import CALLER, Session

CALLS_MAX = 40
SHARE = 26
"""The calls of one user: three times the free ones without the reserve of 5."""


class Call:
    """The context of a call from an address."""

    def __init__(self, host: str = "10.0.0.1", port: int = 50_000) -> None:
        self._peer = f"ipv4:{host}:{port}"
        self._on_done: list[Callable[[Any], None]] = []

    def peer(self) -> str:
        return self._peer

    def add_done_callback(self, function: Callable[[Any], None]) -> None:
        self._on_done.append(function)

    def finish(self) -> None:
        for function in self._on_done:
            function(self)


def method(name: str) -> Method:
    every = [*BROKER.methods, *REPLICATION.methods, *COORDINATOR.methods]
    return next(one for one in every if one.name == name)


def answer(request: object, context: object) -> object:
    return request


@pytest.fixture
def room() -> CallLimit:
    return CallLimit(CALLS_MAX)


@pytest.fixture
def alice() -> Iterator[None]:
    authorizer = StandardAuthorizer(super_users=(), allow_everyone_if_no_acl_found=False)
    token = CALLER.set(Session(authorizer, AclIndex, "User:alice", "10.0.0.7"))
    yield
    CALLER.reset(token)


def fill(
    room: CallLimit,
    name: str = "metadata",
    request: object = MetadataRequest(),
    *,
    host: str = "10.0.0.1",
    knows_servers: bool = False,
) -> list[Call]:
    """Makes calls until one is refused, or 100. Returns those that are in progress."""
    call = room.limited(method(name), answer, knows_servers=knows_servers)
    calls: list[Call] = []
    for number in range(100):
        calls.append(Call(host, 50_000 + number))
        try:
            call(request, calls[-1])
        except CallFailed as failure:
            refused = (failure.status, "max.concurrent.rpcs=40" in failure.details)
            break
    else:
        return calls
    assert refused == (Status.RESOURCE_EXHAUSTED, True)
    return calls[:-1]


def test_a_user_with_all_its_calls_leaves_some_to_others_until_a_call_is_done(room: CallLimit) -> None:
    calls = fill(room)
    assert len(calls) == SHARE
    assert len(fill(room, host="10.0.0.2")) > 0
    assert fill(room) == []
    for call in calls:
        call.finish()
    assert len(fill(room)) > 0


def test_streams_count_like_other_calls(room: CallLimit) -> None:
    assert len(fill(room, "fetch_stream")) == SHARE
    assert len(fill(room, "produce_stream")) == 0


def test_calls_between_servers_are_not_counted(room: CallLimit) -> None:
    assert len(fill(room, "replica_fetch")) == 100
    assert len(fill(room)) == SHARE


def test_a_caller_without_a_session_is_a_server_only_behind_the_gate(room: CallLimit) -> None:
    assert len(fill(room, knows_servers=True)) == 100
    assert len(fill(room, knows_servers=False)) == SHARE


def test_a_principal_has_one_share_at_all_its_addresses(room: CallLimit, alice: None) -> None:
    assert len(fill(room, knows_servers=True)) == SHARE
    assert len(fill(room, host="10.0.0.2", knows_servers=True)) == 0


def test_a_login_without_an_authorizer_is_a_user(room: CallLimit) -> None:
    fill(room)
    token = LOGGED_IN.set("User:bob")
    try:
        assert len(fill(room)) > 0
    finally:
        LOGGED_IN.reset(token)


def test_a_call_that_a_broker_forwards_counts_for_its_client(room: CallLimit) -> None:
    assert len(fill(room, "join_group", JoinGroupRequest(client_host="/10.0.0.8"))) == SHARE
    assert len(fill(room, "join_group", JoinGroupRequest(client_host="/10.0.0.9"))) > 0
    assert len(fill(room, "join_group", JoinGroupRequest(), host="10.0.0.8")) == 0
