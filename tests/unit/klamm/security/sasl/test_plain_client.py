from __future__ import annotations

import pytest

from klamm.secret import Secret
from klamm.security.sasl.plain_client import PlainClient


def test_plain_sends_one_message_with_name_and_password() -> None:
    client = PlainClient("tim", Secret("tanstaaftanstaaf"))
    assert client.first() == b"\0tim\0tanstaaftanstaaf"
    assert client.step(b"") is None


@pytest.mark.parametrize(("name", "password"), [("a\0b", "c"), ("a", "b\0c")])
def test_a_name_or_password_with_nul_is_refused(name: str, password: str) -> None:
    with pytest.raises(ValueError, match="NUL"):
        PlainClient(name, Secret(password))
