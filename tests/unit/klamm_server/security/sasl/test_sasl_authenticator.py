from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.errors import ErrorCode
from klamm.secret import Secret
from klamm.security.sasl.plain_client import PlainClient
from klamm.security.sasl.scram_client import ScramClient
from klamm.security.sasl.scram_keys import ScramMechanism, credential_of, salted_password
from klamm_server.security.sasl.credential_store import CredentialStore
from klamm_server.security.sasl.known_passwords import KnownPasswords
from klamm_server.security.sasl.plain_server import PlainServer
from klamm_server.security.sasl.sasl_authenticator import (
    API_VERSIONS_MAX,
    RENEWAL_MS,
    ROUNDS_MAX,
    AuthenticateReply,
    LoginInterruptedError,
    SaslAuthenticator,
    SaslStateError,
    SessionExpiredError,
)
from klamm_server.security.sasl.scram_server import ScramServer
from klamm_server.security.sasl.server import Authenticated, SaslServer, Verification

SHA_256 = ScramMechanism.SHA_256
SALT = b"0123456789abcdef"
NOW_MS = 1_000_000
STORE = CredentialStore(
    {
        (name, SHA_256): credential_of(SHA_256, salted_password(SHA_256, Secret(name * 2), SALT, 4096), SALT, 4096)
        for name in ("alice", "bob")
    },
    b"secret",
)


class TokenServer:
    """A login whose token is valid until a time."""

    def __init__(self, expires_at_s: float) -> None:
        self._expires_at_s = expires_at_s

    def step(self, data: bytes) -> Authenticated:
        return Authenticated(name=data.decode(), expires_at_s=self._expires_at_s)


class EndlessServer:
    """A login that always wants one more message."""

    def step(self, data: bytes) -> bytes:
        return b"more"


def door_of(max_reauth_ms: int = 0, **others: Callable[[], SaslServer]) -> SaslAuthenticator:
    servers: dict[str, Callable[[], SaslServer]] = {
        "SCRAM-SHA-256": lambda: ScramServer(SHA_256, STORE, nonce="server"),
        "PLAIN": lambda: PlainServer(STORE, KnownPasswords(b"key"), 0),
        **others,
    }
    return SaslAuthenticator(servers, max_reauth_ms=lambda _: max_reauth_ms)


def answered(authenticator: SaslAuthenticator, data: bytes, now_ms: int = NOW_MS) -> AuthenticateReply:
    reply = authenticator.authenticate(data, now_ms)
    return authenticator.conclude(reply, reply.check(), now_ms) if isinstance(reply, Verification) else reply


def by_scram(authenticator: SaslAuthenticator, name: str, password: str, now_ms: int = NOW_MS) -> AuthenticateReply:
    assert authenticator.handshake("SCRAM-SHA-256", now_ms).code is ErrorCode.NONE
    client = ScramClient(SHA_256, name, Secret(password), nonce="client")
    proof = client.step(answered(authenticator, client.first(), now_ms).auth_bytes)
    assert proof is not None
    return answered(authenticator, proof, now_ms)


def by_plain(authenticator: SaslAuthenticator, name: str, password: str) -> AuthenticateReply:
    assert authenticator.handshake("PLAIN", NOW_MS).code is ErrorCode.NONE
    return answered(authenticator, PlainClient(name, Secret(password)).first())


@pytest.mark.parametrize("login", [by_scram, by_plain])
def test_a_client_is_served_after_its_login(login: Callable[[SaslAuthenticator, str, str], AuthenticateReply]) -> None:
    authenticator = door_of()
    assert login(authenticator, "alice", "alicealice").code is ErrorCode.NONE
    assert (authenticator.is_complete, authenticator.user, authenticator.expires_ms) == (True, "alice", None)
    authenticator.other("Fetch", NOW_MS)
    authenticator.api_versions(NOW_MS)


@pytest.mark.parametrize("login", [by_scram, by_plain])
@pytest.mark.parametrize("name", ["alice", "nobody"])
def test_every_failed_login_gets_the_same_message_without_its_cause(
    login: Callable[[SaslAuthenticator, str, str], AuthenticateReply], name: str
) -> None:
    authenticator = door_of()
    reply = login(authenticator, name, "guessed")
    assert reply.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert name in reply.cause
    assert name not in reply.message
    assert "guessed" not in reply.cause
    assert not authenticator.is_complete
    assert authenticator.user is None
    with pytest.raises(SaslStateError):
        authenticator.handshake("PLAIN", NOW_MS)


def test_an_unknown_mechanism_is_answered_with_the_enabled_ones() -> None:
    authenticator = door_of()
    reply = authenticator.handshake("GSSAPI", NOW_MS)
    assert (reply.code, reply.mechanisms) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, ("SCRAM-SHA-256", "PLAIN"))
    with pytest.raises(SaslStateError):
        authenticator.handshake("PLAIN", NOW_MS)


@pytest.mark.parametrize("handshakes", [False, True])
def test_nothing_else_is_served_before_the_login_is_complete(handshakes: bool) -> None:
    authenticator = door_of()
    if handshakes:
        authenticator.handshake("PLAIN", NOW_MS)
    with pytest.raises(SaslStateError, match="Produce") as raised:
        authenticator.other("Produce", NOW_MS)
    assert isinstance(raised.value, LoginInterruptedError) == handshakes
    with pytest.raises(SaslStateError):
        authenticator.authenticate(b"\0alice\0alicealice", NOW_MS)


def test_authenticate_before_handshake_ends_the_connection() -> None:
    authenticator = door_of()
    with pytest.raises(SaslStateError, match="before SaslHandshake"):
        authenticator.authenticate(b"\0alice\0alicealice", NOW_MS)
    with pytest.raises(SaslStateError, match="after the end"):
        authenticator.handshake("PLAIN", NOW_MS)


def test_a_second_handshake_during_a_login_ends_the_connection() -> None:
    authenticator = door_of()
    authenticator.handshake("PLAIN", NOW_MS)
    with pytest.raises(LoginInterruptedError, match="during the login"):
        authenticator.handshake("PLAIN", NOW_MS)


def test_the_number_of_api_versions_requests_before_the_login_is_bounded() -> None:
    authenticator = door_of()
    for _ in range(API_VERSIONS_MAX):
        authenticator.api_versions(NOW_MS)
    with pytest.raises(SaslStateError):
        authenticator.api_versions(NOW_MS)


def test_the_number_of_rounds_of_a_login_is_bounded() -> None:
    authenticator = door_of(ENDLESS=EndlessServer)
    authenticator.handshake("ENDLESS", NOW_MS)
    assert all(answered(authenticator, b"x").auth_bytes == b"more" for _ in range(ROUNDS_MAX))
    assert answered(authenticator, b"x").code is ErrorCode.SASL_AUTHENTICATION_FAILED


@pytest.mark.parametrize(
    ("max_reauth_ms", "left_s", "lifetime_ms"), [(5000, 60, 5000), (90_000, 60, 60_000), (0, 60, 60_000)]
)
def test_a_session_ends_with_its_token_or_after_max_reauth_ms(
    max_reauth_ms: int, left_s: int, lifetime_ms: int
) -> None:
    authenticator = door_of(max_reauth_ms, TOKEN=lambda: TokenServer(NOW_MS / 1000 + left_s))
    authenticator.handshake("TOKEN", NOW_MS)
    assert answered(authenticator, b"alice").session_lifetime_ms == lifetime_ms
    authenticator.other("Fetch", NOW_MS + lifetime_ms - 1)
    with pytest.raises(SaslStateError, match="alice"):
        authenticator.other("Fetch", NOW_MS + lifetime_ms)


def test_a_mechanism_may_have_its_own_max_reauth_ms() -> None:
    by_mechanism = {"SHORT": 10_000, "LONG": 20_000}
    for name, lifetime_ms in by_mechanism.items():
        servers = dict.fromkeys(by_mechanism, lambda: TokenServer(NOW_MS / 1000 + 60))
        authenticator = SaslAuthenticator(servers, max_reauth_ms=by_mechanism.__getitem__)
        authenticator.handshake(name, NOW_MS)
        assert answered(authenticator, b"alice").session_lifetime_ms == lifetime_ms


def test_a_session_of_an_expired_token_ends_at_once() -> None:
    authenticator = door_of(TOKEN=lambda: TokenServer(NOW_MS / 1000 - 1))
    authenticator.handshake("TOKEN", NOW_MS)
    answered(authenticator, b"alice")
    with pytest.raises(SaslStateError):
        authenticator.other("Fetch", NOW_MS)


def test_a_new_login_makes_the_session_longer() -> None:
    authenticator = door_of(5000)
    by_scram(authenticator, "alice", "alicealice")
    assert by_scram(authenticator, "alice", "alicealice", NOW_MS + 6000).session_lifetime_ms == 5000
    authenticator.other("Fetch", NOW_MS + 10_999)


def test_a_session_without_an_end_cannot_be_renewed() -> None:
    authenticator = door_of(0)
    assert authenticator.may_begin(NOW_MS)
    by_scram(authenticator, "alice", "alicealice")
    assert not authenticator.may_begin(NOW_MS + 60_000)
    assert authenticator.is_complete


def test_a_session_is_renewed_once_a_second() -> None:
    authenticator = door_of(5_000)
    by_scram(authenticator, "alice", "alicealice")
    assert authenticator.may_begin(NOW_MS), "the first login does not renew a session"
    by_scram(authenticator, "alice", "alicealice", NOW_MS)
    assert not authenticator.may_begin(NOW_MS + RENEWAL_MS - 1)
    assert authenticator.is_complete
    assert authenticator.may_begin(NOW_MS + RENEWAL_MS)
    assert authenticator.may_begin(NOW_MS - 1), "the clock may be set back"


def test_after_the_end_of_a_session_only_a_new_login_is_served() -> None:
    for request in (
        lambda authenticator: authenticator.api_versions(NOW_MS + 500),
        lambda authenticator: authenticator.other("SaslAuthenticate", NOW_MS + 500),
        lambda authenticator: authenticator.may_begin(NOW_MS + 500),
    ):
        authenticator = door_of(500)
        by_scram(authenticator, "alice", "alicealice", NOW_MS - 1)
        by_scram(authenticator, "alice", "alicealice", NOW_MS)
        with pytest.raises(SessionExpiredError, match="expected a new login"):
            request(authenticator)
    authenticator = door_of(500)
    by_scram(authenticator, "alice", "alicealice")
    assert authenticator.may_begin(NOW_MS + 60_000)


@pytest.mark.parametrize(("login", "name"), [(by_scram, "bob"), (by_plain, "alice"), (by_scram, "mallory")])
def test_a_second_login_with_another_user_or_mechanism_is_refused(
    login: Callable[[SaslAuthenticator, str, str], AuthenticateReply], name: str
) -> None:
    authenticator = door_of(5000)
    by_scram(authenticator, "alice", "alicealice")
    assert login(authenticator, name, name * 2).code is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert authenticator.user == "alice"
    assert not authenticator.is_complete


@given(
    st.lists(
        st.tuples(st.sampled_from(["versions", "handshake", "authenticate", "other"]), st.binary(max_size=40)),
        max_size=12,
    )
)
def test_no_sequence_of_requests_without_a_password_logs_a_client_in(requests: list[tuple[str, bytes]]) -> None:
    authenticator = door_of()
    with contextlib.suppress(SaslStateError):
        for kind, data in requests:
            if kind == "versions":
                authenticator.api_versions(NOW_MS)
            elif kind == "handshake":
                authenticator.handshake("PLAIN" if len(data) % 2 else "SCRAM-SHA-256", NOW_MS)
            elif kind == "authenticate":
                answered(authenticator, data)
            else:
                authenticator.other("Fetch", NOW_MS)
    assert authenticator.user is None
    assert not authenticator.is_complete
