"""Tests the limits of clients in a handshake: of all clients, and of one address."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from klamm_broker.kafka.net.handshake_limit import HandshakeLimit


def test_one_address_may_have_a_tenth_of_all_connections_in_handshake() -> None:
    room = HandshakeLimit(20)
    assert [room.take("a"), room.take("a")] == ["", ""]
    assert room.take("a") == (
        "a tenth of max.unauthenticated.connections=20 connections from the client's address are in their handshake"
        " or login"
    )
    for number in range(18):
        assert room.take(f"b{number}") == ""
    assert room.take("c") == "max.unauthenticated.connections=20 connections are in their handshake or login"
    room.give_back("a")
    assert room.take("c") == ""


def test_one_handshake_is_always_allowed() -> None:
    room = HandshakeLimit(1)
    assert room.take("a") == ""
    assert room.take("b") != ""


@given(st.lists(st.tuples(st.booleans(), st.sampled_from("abc"))), st.integers(1, 40))
def test_a_finished_handshake_makes_room_for_another(steps: list[tuple[bool, str]], bound: int) -> None:
    """The model is a list of the clients inside."""
    room, inside = HandshakeLimit(bound), list[str]()
    for comes, address in steps:
        if comes:
            fits = len(inside) < bound and inside.count(address) < max(1, bound // 10)
            assert (room.take(address) == "") == fits
            if fits:
                inside.append(address)
        elif address in inside:
            inside.remove(address)
            room.give_back(address)
        assert len(room) == len(inside)
