from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.secret import Secret
from klamm.security.sasl.plain_client import PlainClient
from klamm.security.sasl.scram_keys import ScramCredential, ScramMechanism, credential_of, salted_password
from klamm_server.security.sasl.credential_store import CredentialStore
from klamm_server.security.sasl.known_passwords import KEPT_MS, KnownPasswords
from klamm_server.security.sasl.plain_server import PlainServer
from klamm_server.security.sasl.server import Authenticated, SaslRefusedError, Verification

SHA_256, SHA_512 = ScramMechanism


def made_of(password: str, mechanism: ScramMechanism) -> ScramCredential:
    return credential_of(mechanism, salted_password(mechanism, Secret(password), b"salt", 4096), b"salt", 4096)


STORE = CredentialStore(
    {("alice", SHA_256): made_of("wonderland", SHA_256), ("bob", SHA_512): made_of("böilder", SHA_512)}, b"secret"
)


def server(known: KnownPasswords | None = None, now_ms: int = 0) -> PlainServer:
    return PlainServer(STORE, KnownPasswords(b"key") if known is None else known, now_ms)


def login(message: bytes) -> Authenticated:
    verification = server().step(message)
    assert isinstance(verification, Verification)
    done = verification.decide(verification.check())
    assert isinstance(done, Authenticated)
    return done


@pytest.mark.parametrize(("name", "password"), [("alice", "wonderland"), ("bob", "böilder")])
def test_a_client_with_the_right_password_logs_in(name: str, password: str) -> None:
    assert login(PlainClient(name, Secret(password)).first()).name == name


def test_a_plain_message_may_name_the_user_as_authorization_id_too() -> None:
    assert login(b"alice\0alice\0wonderland").name == "alice"


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        (b"\0alice\0Wonderland", "wrong password"),
        (b"\0bob\0wonderland", "wrong password"),
        (b"\0nobody\0wonderland", "has no credential"),
        (b"bob\0alice\0wonderland", "act as 'bob'"),
        (b"\0alice\0", "no user name or no password"),
        (b"\0\0wonderland", "no user name or no password"),
        (b"alice\0wonderland", "2 parts"),
        (b"\0alice\0wonder\0land", "4 parts"),
        (b"", "1 parts"),
        (b"\0alice\0wonderland\xff", "not UTF-8"),
    ],
)
def test_a_wrong_password_user_or_message_is_refused(message: bytes, cause: str) -> None:
    with pytest.raises(SaslRefusedError, match=cause) as refused:
        login(message)
    assert "wonder" not in f"{refused.value} {refused.value.__cause__!r}"


def test_an_unknown_user_is_refused_even_if_the_password_check_succeeds() -> None:
    verification = server().step(b"\0nobody\0wonderland")
    assert isinstance(verification, Verification)
    with pytest.raises(SaslRefusedError):
        verification.decide(True)


def test_a_second_plain_message_is_refused() -> None:
    one = server()
    one.step(b"\0alice\0wonderland")
    with pytest.raises(SaslRefusedError, match="after the end"):
        one.step(b"\0alice\0wonderland")


def test_a_password_that_was_right_is_not_checked_again_for_a_while() -> None:
    known = KnownPasswords(b"key")
    first = server(known).step(b"\0alice\0wonderland")
    assert isinstance(first, Verification)
    done = first.decide(first.check())
    again = server(known, KEPT_MS - 1).step(b"\0alice\0wonderland")
    assert isinstance(again, Authenticated)
    assert again == done
    assert again.proven is not None
    for message, now_ms in ((b"\0alice\0wonderlanD", 0), (b"\0alice\0wonderland", KEPT_MS)):
        assert isinstance(server(known, now_ms).step(message), Verification)


def test_a_password_that_was_wrong_is_not_remembered() -> None:
    known = KnownPasswords(b"key")
    first = server(known).step(b"\0alice\0wrong")
    assert isinstance(first, Verification)
    with pytest.raises(SaslRefusedError) as refused:
        first.decide(first.check())
    assert refused.value.user == "alice"
    assert not len(known)


@given(st.binary() | st.text("ab\0", max_size=9).map(str.encode))
def test_any_bytes_are_checked_or_refused(data: bytes) -> None:
    with contextlib.suppress(SaslRefusedError):
        server().step(data)
