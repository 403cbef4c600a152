from __future__ import annotations

import pytest

from klamm.secret import Secret
from klamm.security.sasl.plain_client import PlainClient


def test_one_message() -> None:
    client = PlainClient("tim", Secret("tanstaaftanstaaf"))
    assert client.first() == b"\0tim\0tanstaaftanstaaf"
    assert client.step(b"") is None


@pytest.mark.parametrize(("name", "password"), [("a\0b", "c"), ("a", "b\0c")])
def test_nul_cannot_be_sent(name: str, password: str) -> None:
    with pytest.raises(ValueError, match="NUL"):
        PlainClient(name, Secret(password))
