from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.errors import EXCEPTIONS, ErrorCode
from klamm.secret import Secret
from klamm.security.sasl.oauthbearer_client import OAuthBearerClient
from klamm_server.security.sasl.oauthbearer_server import OAuthBearerServer
from klamm_server.security.sasl.server import Authenticated, SaslRefusedError
from klamm_server.security.sasl.token_rules import TokenRefusedError, ValidToken

TOKEN = "abc.DEF-_.123"


def validate(token: str) -> ValidToken:
    if token != TOKEN:
        raise TokenRefusedError("claim exp: the token has expired")
    return ValidToken(subject="a=b,c", expires_at_s=99.5, scopes=frozenset())


def answer(server: OAuthBearerServer, data: bytes) -> bytes | Authenticated:
    verification = server.step(data)
    return verification.decide(verification.check())


def test_a_valid_token_logs_its_user_in() -> None:
    client = OAuthBearerClient(Secret(TOKEN), {"logicalCluster": "lkc 1"})
    done = answer(OAuthBearerServer(validate), client.first())
    assert done == Authenticated(name="a=b,c", expires_at_s=99.5)
    assert client.step(done.answer) is None


def test_a_bad_token_is_refused_in_two_steps() -> None:
    client, server = OAuthBearerClient(Secret("bad")), OAuthBearerServer(validate)
    problem = answer(server, client.first())
    assert problem == b'{"status":"invalid_token"}'
    last = client.step(problem)
    assert last == b"\x01"
    with pytest.raises(SaslRefusedError, match="has expired"):
        server.step(last)
    with pytest.raises(EXCEPTIONS[ErrorCode.SASL_AUTHENTICATION_FAILED], match="invalid_token"):
        client.step(b"")


@pytest.mark.parametrize(
    "message",
    [
        b"n,a=a=3Db=2Cc,\x01auth=Bearer abc.DEF-_.123\x01\x01",
        b"n,,\x01auth=bearer   abc.DEF-_.123\x01\x01",
        b"n,,\x01host=x\x01auth=BEARER abc.DEF-_.123\x01port=1\x01\x01",
    ],
)
def test_equivalent_forms_of_an_oauthbearer_message_are_accepted(message: bytes) -> None:
    assert isinstance(answer(OAuthBearerServer(validate), message), Authenticated)


@pytest.mark.parametrize(
    "message",
    [
        b"n,a=eve,\x01auth=Bearer abc.DEF-_.123\x01\x01",
        b"p=x,,\x01auth=Bearer abc.DEF-_.123\x01\x01",
        b"n,,\x01auth=Bearer abc.DEF-_.123\x01",
        b"n,,\x01auth=Bearer abc.DEF-_.123\x01auth=Bearer abc.DEF-_.123\x01\x01",
        b"n,,\x01auth=Basic abc.DEF-_.123\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01host=x\x01\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer abc.DEF-_.123\x01\x01\x01",
        b"\xff",
        b"",
    ],
)
def test_a_malformed_oauthbearer_message_is_refused(message: bytes) -> None:
    with pytest.raises(SaslRefusedError) as refused:
        answer(OAuthBearerServer(validate), message)
    assert TOKEN not in str(refused.value)


def test_a_second_message_after_an_accepted_token_is_refused() -> None:
    server = OAuthBearerServer(validate)
    message = OAuthBearerClient(Secret(TOKEN)).first()
    answer(server, message)
    with pytest.raises(SaslRefusedError, match="after the end"):
        server.step(message)


@given(st.lists(st.binary() | st.text("n,a=\x01uthBeaer x").map(str.encode), max_size=3))
def test_any_bytes_are_answered_or_refused_and_never_log_a_client_in(messages: list[bytes]) -> None:
    server = OAuthBearerServer(validate)
    with contextlib.suppress(SaslRefusedError):
        for data in messages:
            assert isinstance(answer(server, data), bytes)
