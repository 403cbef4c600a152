"""Tests the credentials of logins: passwords from settings and files, and tokens that are cached."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from klamm.config import ClientConfig
from klamm.errors import ConfigError
from klamm.rpc.client_sasl import client_sasl
from klamm.rpc.login import LoginFailed
from klamm.rpc.sasl_sources import PasswordSource, TokenSource, read_password
from klamm.rpc.status import CallFailed, Status
from klamm.secret import Secret
from klamm.security import token_endpoint
from klamm.security.client_settings import PasswordLogin, TokenLogin
from klamm.security.token_endpoint import GivenToken, TokenEndpointError

CANARY = "canary-s3cret"
URL = "https://idp.example/token"
LIFETIME_S = 100


def password_file(directory: Path, text: str, mode: int = 0o600) -> str:
    path = directory / "password"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_a_client_without_sasl_has_no_credential_source() -> None:
    assert client_sasl(ClientConfig.parse({"security.protocol": "SSL", "sasl.username": "alice"})) is None


def test_client_settings_select_the_credential_source() -> None:
    given = {"security.protocol": "SASL_SSL", "sasl.username": "alice", "sasl.password": CANARY}
    for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
        source = client_sasl(ClientConfig.parse({**given, "sasl.mechanism": mechanism}))
        assert source is not None
        assert source.mechanism_name == source.client().mechanism_name == mechanism
    tokens = {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.callback": lambda: "t0ken"}
    source = client_sasl(ClientConfig.parse({"security.protocol": "SASL_SSL", **tokens}))
    assert source is not None
    assert source.client().first() == b"n,,\x01auth=Bearer t0ken\x01\x01"


def test_each_scram_login_has_a_new_nonce() -> None:
    source = PasswordSource("SCRAM-SHA-256", PasswordLogin(name="alice", password=Secret(CANARY)))
    assert source.client().first() != source.client().first()


def test_a_password_file_is_read_for_each_login(tmp_path: Path) -> None:
    name = password_file(tmp_path, "first\nsecond\n")
    source = PasswordSource("PLAIN", PasswordLogin(name="alice", password_file=name))
    assert source.client().first() == b"\0alice\0first"
    password_file(tmp_path, "other\r\n")
    assert source.client().first() == b"\0alice\0other"
    Path(name).unlink()
    with pytest.raises(CallFailed, match="cannot be read") as failed:
        source.client()
    assert failed.value.status is Status.UNAVAILABLE


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o644])
def test_a_password_file_with_access_for_others_is_refused(tmp_path: Path, mode: int) -> None:
    name = password_file(tmp_path, CANARY, mode)
    with pytest.raises(ConfigError, match=f"mode {mode:04o}"):
        read_password(name)
    Path(name).chmod(stat.S_IRUSR | stat.S_IRGRP)
    assert read_password(name) == Secret(CANARY)


def test_a_missing_empty_or_binary_password_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_password(str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="its first line is empty"):
        read_password(password_file(tmp_path, "\nlater"))
    (tmp_path / "password").write_bytes(b"\xff" + CANARY.encode())
    with pytest.raises(ConfigError, match="not UTF-8") as refused:
        read_password(str(tmp_path / "password"))
    assert CANARY not in str(refused.value)


@pytest.mark.parametrize("password", [f"{CANARY}\0", f"{CANARY}\udcff"])
def test_a_password_that_cannot_be_sent_is_refused_without_showing_it(password: str) -> None:
    with pytest.raises(ConfigError) as refused:
        PasswordSource("PLAIN", PasswordLogin(name="alice", password=Secret(password)))
    assert CANARY not in str(refused.value)


class Endpoint:
    """Plays the server that issues tokens: it answers "t0", "t1" and so on, or an error."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked = 0
        self.error: TokenEndpointError | None = None
        monkeypatch.setenv(token_endpoint.ALLOWED_URLS, URL)
        monkeypatch.setattr(token_endpoint, "fetch_token", self.fetch)

    def fetch(self, url: str, client_id: str, secret: Secret, scope: str, *, timeout_s: float) -> GivenToken:
        assert (url, client_id, secret, scope, timeout_s) == (URL, "id", Secret(CANARY), "s", 5)
        if self.error is not None:
            raise self.error
        self.asked += 1
        return GivenToken(Secret(f"t{self.asked - 1}"), LIFETIME_S)


LOGIN = TokenLogin(url=URL, client_id="id", client_secret=Secret(CANARY), scope="s")


def test_a_token_is_reused_for_80_percent_of_its_lifetime(monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint, now_s = Endpoint(monkeypatch), 0.0
    source = TokenSource(LOGIN, timeout_s=5, clock_s=lambda: now_s)
    assert b"Bearer t0" in source.client().first()
    now_s = 0.79 * LIFETIME_S
    assert b"Bearer t0" in source.client().first()
    now_s = 0.8 * LIFETIME_S
    assert b"Bearer t1" in source.client().first()
    assert endpoint.asked == 2


@pytest.mark.parametrize("is_passing", [True, False])
def test_a_login_without_a_token_fails(monkeypatch: pytest.MonkeyPatch, is_passing: bool) -> None:
    endpoint = Endpoint(monkeypatch)
    endpoint.error = TokenEndpointError("status", is_passing=is_passing)
    with pytest.raises(CallFailed, match="no token: status") as failed:
        TokenSource(LOGIN, timeout_s=5).client()
    assert isinstance(failed.value, LoginFailed) is not is_passing
    assert failed.value.error("x").retriable is is_passing


def test_a_token_url_that_is_not_allowed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(token_endpoint.ALLOWED_URLS, raising=False)
    with pytest.raises(ConfigError, match="is not asked for tokens"):
        TokenSource(LOGIN, timeout_s=5)


def test_a_failing_token_callback_or_an_invalid_token_is_an_error_without_secrets() -> None:
    def fail() -> str:
        raise OSError(CANARY)

    with pytest.raises(CallFailed, match="callback raised OSError") as failed:
        TokenSource(TokenLogin(callback=fail), timeout_s=5).client()
    assert CANARY not in str(failed.value)
    assert failed.value.__cause__ is None
    with pytest.raises(LoginFailed, match="no bearer token") as refused:
        TokenSource(TokenLogin(callback=lambda: f"not {CANARY}"), timeout_s=5).client()
    assert CANARY not in str(refused.value)
