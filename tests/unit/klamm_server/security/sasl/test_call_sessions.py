"""Tests logins in progress and sessions of callers: their owners, their ends, and their maximum number."""

from __future__ import annotations

import pytest

from klamm_server.security.sasl.call_sessions import (
    LOGIN_MS,
    LOGINS_MAX,
    LOGINS_MAX_BY_ADDRESS,
    CallSession,
    CallSessions,
    LoginsUnderWay,
)

PEER, OTHER_PEER = "ipv4:10.0.0.1:50000", "ipv4:10.0.0.1:50001"
SAID = "Klamm dG9rZW4="


def begin(logins: LoginsUnderWay[str], name: str, address: str = "10.0.0.1", now_ms: int = 0) -> bool:
    return logins.begin(name.encode(), name, peer=PEER, address=address, now_ms=now_ms)


def test_a_login_continues_at_its_connection_one_message_at_a_time() -> None:
    logins: LoginsUnderWay[str] = LoginsUnderWay()
    assert begin(logins, "a")
    assert logins.take(b"a", OTHER_PEER, 0) is None
    assert logins.take(b"b", PEER, 0) is None
    assert logins.take(b"a", PEER, 0) == "a"
    assert logins.take(b"a", PEER, 0) is None
    logins.put_back(b"a")
    assert logins.take(b"a", PEER, 0) == "a"
    logins.end(b"a")
    logins.end(b"a")
    logins.put_back(b"a")
    assert logins.take(b"a", PEER, 0) is None
    assert len(logins) == 0


def test_an_unfinished_login_ends_after_half_a_minute() -> None:
    logins: LoginsUnderWay[str] = LoginsUnderWay()
    begin(logins, "a")
    begin(logins, "b", now_ms=1)
    assert logins.take(b"a", PEER, LOGIN_MS - 1) == "a"
    assert logins.take(b"b", PEER, LOGIN_MS) == "b"
    logins.put_back(b"a")
    assert len(logins) == 1


def test_unfinished_logins_of_one_address_do_not_block_other_addresses() -> None:
    logins: LoginsUnderWay[str] = LoginsUnderWay()
    assert all(begin(logins, f"a{n}") for n in range(LOGINS_MAX_BY_ADDRESS))
    assert not begin(logins, "a")
    assert begin(logins, "b", address="10.0.0.2")
    logins.end(b"a0")
    assert begin(logins, "a")


def test_unfinished_logins_are_bounded_until_they_time_out() -> None:
    logins: LoginsUnderWay[str] = LoginsUnderWay()
    assert all(begin(logins, f"a{n}", address=str(n)) for n in range(LOGINS_MAX))
    assert not begin(logins, "a", address="another")
    assert begin(logins, "a", address="another", now_ms=LOGIN_MS)
    assert len(logins) == 1


@pytest.mark.parametrize(
    ("peer", "expires_ms", "now_ms", "is_good"),
    [
        (PEER, None, 10**15, True),
        (PEER, 1_000, 999, True),
        (PEER, 1_000, 1_000, False),
        (OTHER_PEER, None, 0, False),
        (None, None, 0, True),
    ],
)
def test_a_session_is_valid_only_at_its_connection_and_until_it_expires(
    peer: str | None, expires_ms: int | None, now_ms: int, is_good: bool
) -> None:
    assert CallSession("alice", peer=peer, expires_ms=expires_ms).is_good(PEER, now_ms) is is_good


def test_the_end_of_a_session_is_reported_once_to_its_remaining_listeners() -> None:
    session, told = CallSession("alice", peer=PEER), []

    def first() -> None:
        told.append("first")

    def second() -> None:
        told.append("second")

    session.on_end(first)
    session.on_end(second)
    session.forget(first)
    session.end()
    session.end()
    assert told == ["second"]
    assert not session.is_good(PEER, 0)


def test_a_session_is_found_by_the_token_of_its_calls() -> None:
    sessions, session = CallSessions(), CallSession("alice", peer=PEER)
    sessions.begin(SAID, session)
    assert sessions.find(SAID) is session
    assert sessions.find(SAID.lower()) is None
    assert sessions.find("") is None
    assert sessions.find("\udcff") is None


def test_the_least_recently_used_session_is_evicted() -> None:
    sessions = CallSessions(sessions_max=2)
    made = [CallSession(name, peer=PEER) for name in "abc"]
    sessions.begin("a", made[0])
    sessions.begin("b", made[1])
    assert sessions.find("a") is made[0]
    sessions.begin("c", made[2])
    assert [session.is_over for session in made] == [False, True, False]
    assert sessions.find("b") is None
    assert len(sessions) == 2


def test_a_sweep_ends_expired_sessions_and_removes_ended_ones() -> None:
    sessions = CallSessions()
    lasting, short, ended = (CallSession(name, peer=PEER) for name in "abc")
    short.expires_ms = 1_000
    for session in (lasting, short, ended):
        sessions.begin(session.user, session)
    ended.end()
    sessions.sweep(999)
    assert not short.is_over
    assert len(sessions) == 2
    sessions.sweep(1_000)
    assert short.is_over
    assert len(sessions) == 1
