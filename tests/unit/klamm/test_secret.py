"""Tests that no text shows a secret, while code that asks for it gets it."""

from __future__ import annotations

import copy
import json
import logging
import pickle
import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.secret import HIDDEN, Secret

TEXT = "hunter2-über"


@pytest.mark.parametrize(
    "show",
    [
        repr,
        str,
        format,
        ascii,
        "{}".format,
        "{:>40}".format,
        "{!r}".format,
        lambda secret: f"{secret}",
        lambda secret: "%s %r" % (secret, secret),  # noqa: UP031
        lambda secret: "a" + secret + "b",
        lambda secret: ",".join([secret, secret]),
        lambda secret: secret.encode().decode(),
        lambda secret: json.dumps({"password": secret, "all": [secret]}),
        lambda secret: "".join(secret),
        lambda secret: secret[0:] + secret.upper(),
        lambda secret: repr({"password": secret, "both": (secret, [secret])}),
        lambda secret: "".join(traceback.format_exception_only(ValueError(secret))),
        lambda secret: logging.LogRecord("n", 20, "p", 1, "is %s %r", (secret, secret), None).getMessage(),
    ],
)
def test_a_secret_is_hidden_in_every_text(show) -> None:
    shown = show(Secret(TEXT))
    assert HIDDEN.lower() in shown.lower()
    assert not any(part in shown for part in ("hunter2", "HUNTER2", "über"))


@given(st.text(), st.text())
def test_reveal_returns_the_secret_and_equal_secrets_are_equal(one: str, other: str) -> None:
    secret = Secret(one)
    assert secret.reveal() == one
    assert secret == Secret(one)
    assert hash(secret) == hash(Secret(one))
    assert (secret == Secret(other)) is (one == other)
    assert (secret != Secret(other)) is (one != other)
    assert secret != one
    assert secret != HIDDEN
    assert secret != HIDDEN


@given(st.text())
def test_a_pickled_or_copied_secret_is_still_a_secret(text: str) -> None:
    for carried in (pickle.loads(pickle.dumps(Secret(text))), copy.deepcopy(Secret(text)), Secret(Secret(text))):
        assert isinstance(carried, Secret)
        assert carried.reveal() == text
        assert str(carried) == HIDDEN
