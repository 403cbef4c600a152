"""Tests logins in progress and sessions of callers: their owners, their ends, and their maximum number."""

from __future__ import annotations

import pytest

from klamm_server.security.sasl.call_sessions import (
    LOGIN_MS,
    LOGINS_MAX,
    SESSIONS_MAX_BY_CONNECTION,
    CallSession,
    CallSessions,
    LoginsUnderWay,
)

PEER, OTHER_PEER = "ipv4:10.0.0.1:50000", "ipv4:10.0.0.1:50001"
SAID = "Klamm dG9rZW4="


def begin(logins: LoginsUnderWay[str], name: str, address: str = "10.0.0.1", now_ms: int = 0, peer: str = PEER) -> None:
    logins.begin(name.encode(), name, peer=peer, address=address, now_ms=now_ms)


def test_a_login_continues_at_its_connection_one_message_at_a_time() -> None:
    logins: LoginsUnderWay[str] = LoginsUnderWay()
    begin(logins, "a")
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


def test_a_connection_has_two_unfinished_logins_and_a_third_one_ends_the_oldest() -> None:
    logins: LoginsUnderWay[str] = LoginsUnderWay()
    for name in "abc":
        begin(logins, name)
    begin(logins, "d", peer=OTHER_PEER)
    assert [logins.take(name.encode(), PEER, 0) for name in "abc"] == [None, "b", "c"]
    assert logins.take(b"d", OTHER_PEER, 0) == "d"


def test_a_login_of_another_address_takes_the_place_of_the_address_with_the_most_logins() -> None:
    logins: LoginsUnderWay[str] = LoginsUnderWay()
    begin(logins, "few", address="10.0.0.2", peer="few")
    for number in range(LOGINS_MAX - 1):
        begin(logins, f"many-{number}", address="10.0.0.1", peer=str(number))
    begin(logins, "another", address="10.0.0.3", peer="another")
    assert len(logins) == LOGINS_MAX
    assert logins.take(b"few", "few", 0) == "few"
    assert logins.take(b"another", "another", 0) == "another"
    assert logins.take(b"many-0", "0", 0) is None
    begin(logins, "late", address="10.0.0.4", now_ms=LOGIN_MS)
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


def test_beyond_the_maximum_the_user_with_the_most_sessions_loses_its_least_recently_used_one() -> None:
    sessions = CallSessions(sessions_max=3)
    made = [CallSession(user, peer=f"peer-{number}") for number, user in enumerate(["bob", "alice", "alice", "carol"])]
    for said, session in zip("abc", made[:3], strict=True):
        sessions.begin(said, session)
    assert sessions.find("b") is made[1]
    sessions.begin("d", made[3])
    assert [session.is_over for session in made] == [False, False, True, False]
    assert sessions.find("c") is None
    assert len(sessions) == 3


def test_a_connection_that_logs_in_again_and_again_ends_its_oldest_session() -> None:
    sessions = CallSessions()
    made = [CallSession("alice", peer=PEER) for _ in range(SESSIONS_MAX_BY_CONNECTION + 1)]
    other = CallSession("alice", peer=OTHER_PEER)
    sessions.begin("other", other)
    for number, session in enumerate(made):
        sessions.begin(str(number), session)
    assert [session.is_over for session in made] == [True, *[False] * SESSIONS_MAX_BY_CONNECTION]
    assert not other.is_over
    assert len(sessions) == SESSIONS_MAX_BY_CONNECTION + 1


def test_sessions_by_bearer_tokens_belong_to_no_connection() -> None:
    sessions = CallSessions()
    made = [CallSession("alice", peer=None) for _ in range(SESSIONS_MAX_BY_CONNECTION + 1)]
    for number, session in enumerate(made):
        sessions.begin(str(number), session)
    assert not any(session.is_over for session in made)


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
