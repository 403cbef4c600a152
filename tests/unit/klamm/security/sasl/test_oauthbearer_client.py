from __future__ import annotations

import pytest

from klamm.errors import EXCEPTIONS, ErrorCode
from klamm.secret import Secret
from klamm.security.sasl.oauthbearer_client import OAuthBearerClient


def test_the_oauthbearer_message_has_token_and_extensions() -> None:
    client = OAuthBearerClient(Secret("abc.def"), {"a": "1", "b": "2 3"})
    assert client.first() == b"n,,\x01auth=Bearer abc.def\x01a=1\x01b=2 3\x01\x01"
    assert client.step(b"") is None


@pytest.mark.parametrize(
    ("problem", "status"),
    [
        (b'{"status":"invalid_token","scope":"x"}', "invalid_token"),
        (b"\xff", "without a status"),
        (b'{"status":"<script>"}', "without a status"),
    ],
)
def test_a_servers_refusal_is_acknowledged_once_and_then_raised(problem: bytes, status: str) -> None:
    client = OAuthBearerClient(Secret("abc"))
    assert client.step(problem) == b"\x01"
    with pytest.raises(EXCEPTIONS[ErrorCode.SASL_AUTHENTICATION_FAILED], match=status):
        client.step(b"")


@pytest.mark.parametrize("token", ["", "hunter2 x", "hunter2\x01", "hunter2\n", "hünter2"])
def test_an_invalid_bearer_token_is_refused_without_showing_it(token: str) -> None:
    with pytest.raises(ValueError, match="no bearer token") as refused:
        OAuthBearerClient(Secret(token))
    assert "nter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "value"), [("auth", "x"), ("a1", "x"), ("", "x"), ("a", ""), ("a", "x\x01"), ("a", "é")]
)
def test_an_invalid_extension_is_refused(name: str, value: str) -> None:
    with pytest.raises(ValueError, match="cannot be sent") as refused:
        OAuthBearerClient(Secret("abc"), {name: value})
    assert "abc" not in str(refused.value)
