from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.errors import EXCEPTIONS, ErrorCode
from klamm.secret import Secret
from klamm.security.sasl.client import SaslClient
from klamm.security.sasl.scram_client import ScramClient
from klamm.security.sasl.scram_keys import ScramMechanism

SaslAuthenticationFailedError = EXCEPTIONS[ErrorCode.SASL_AUTHENTICATION_FAILED]
# RFC 7677, section 3.
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def client() -> SaslClient:
    return ScramClient(ScramMechanism.SHA_256, "user", Secret("pencil"), nonce="rOprNGfwEbeRWgbNEkqO")


def test_the_client_sends_the_messages_of_the_rfc_example() -> None:
    me = client()
    assert me.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert me.step(SERVER_FIRST) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert me.step(SERVER_FINAL) is None


@pytest.mark.parametrize(
    ("server_first", "problem"),
    [
        (SERVER_FIRST.replace(b"r=rO", b"r=rX"), "does not continue"),
        (b"r=rOprNGfwEbeRWgbNEkqO,s=YQ==,i=4096", "does not continue"),
        (SERVER_FIRST.replace(b"i=4096", b"i=4095"), "4095 iterations; expected 4096 to 16384"),
        (SERVER_FIRST.replace(b"i=4096", b"i=16385"), "16385 iterations"),
        (b"e=unknown-user", "expected"),
        (b"", "expected"),
    ],
)
def test_an_invalid_server_first_message_ends_the_login(server_first: bytes, problem: str) -> None:
    with pytest.raises(SaslAuthenticationFailedError, match=problem):
        client().step(server_first)


@pytest.mark.parametrize(
    "server_final", [SERVER_FINAL.replace(b"v=6", b"v=7"), b"v=YQ==", b"v=", b"e=invalid-proof", b"", SERVER_FIRST]
)
def test_a_server_final_message_with_a_wrong_signature_is_refused(server_final: bytes) -> None:
    me = client()
    me.step(SERVER_FIRST)
    with pytest.raises(SaslAuthenticationFailedError):
        me.step(server_final)


@given(st.lists(st.binary() | st.sampled_from([SERVER_FIRST, SERVER_FINAL]), max_size=3))
def test_any_server_bytes_are_answered_or_raise_an_authentication_error(answers: list[bytes]) -> None:
    me = client()
    with contextlib.suppress(SaslAuthenticationFailedError):
        for answer in answers:
            me.step(answer)


def test_equals_signs_and_commas_in_a_user_name_are_escaped() -> None:
    me = ScramClient(ScramMechanism.SHA_512, "a=b,c=2C", Secret("x"), nonce="n")
    assert me.first() == b"n,,n=a=3Db=2Cc=3D2C,r=n"
