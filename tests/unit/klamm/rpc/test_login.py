"""Tests one login: the messages of both ends, and the errors if one end is not the right one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from klamm.errors import AuthenticationError, ErrorCode, KlammError
from klamm.rpc.login import LoginFailed, log_in
from klamm.rpc.status import CallFailed, Status
from klamm.wire.v1.authentication_pb2 import SaslAuthenticateResponse, SaslHandshakeResponse
from tests.support.login_server import LoginServer, Source


def login(server: LoginServer, source: Source | None = None) -> str:
    return asyncio.run(log_in(server, source or Source(), timeout_ms=60_000)).authorization


def refused(server: LoginServer, source: Source | None = None) -> KlammError:
    """Logs in and fails. Returns the error that a call waiting for the login raises."""
    with pytest.raises(LoginFailed) as failed:
        login(server, source)
    error = failed.value.error("metadata at h:1")
    assert isinstance(error, AuthenticationError)
    assert not error.retriable
    assert "s3cret" not in str(error)
    return error


def test_a_client_with_the_password_gets_a_session() -> None:
    server = LoginServer()
    assert login(server) == "Klamm dG9rZW4x"
    assert server.seen == ["sasl_handshake", "sasl_authenticate", "sasl_authenticate"]
    assert server.sessions == {"Klamm dG9rZW4x"}


def test_a_wrong_password_raises_the_servers_message() -> None:
    error = refused(LoginServer(), Source(password="guess"))
    assert str(error) == "SASL_AUTHENTICATION_FAILED: metadata at h:1: no"
    assert type(error).__name__ == "SaslAuthenticationError"


def test_a_mechanism_that_is_not_enabled_is_refused() -> None:
    server = LoginServer()

    async def handshake(request: Any) -> SaslHandshakeResponse:
        return SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, error_message="enabled: PLAIN")

    server.handshake = handshake
    assert str(refused(server)) == "UNSUPPORTED_SASL_MECHANISM: metadata at h:1: enabled: PLAIN"


def test_a_login_at_a_listener_without_sasl_is_refused() -> None:
    server = LoginServer()

    async def handshake(request: Any) -> SaslHandshakeResponse:
        raise CallFailed(Status.UNIMPLEMENTED, "Method not found!")

    server.handshake = handshake
    assert "nobody logs in at this listener (security.protocol=PLAINTEXT or SSL)" in str(refused(server))


def test_a_server_with_a_wrong_signature_is_refused() -> None:
    server = LoginServer()
    honest = server.authenticate

    async def authenticate(request: Any) -> SaslAuthenticateResponse:
        answer = await honest(request)
        if answer.session_token:
            answer.auth_bytes = b"v=" + b"A" * 43 + b"="
        return answer

    server.authenticate = authenticate
    assert "the server's signature is wrong" in str(refused(server))


@pytest.mark.parametrize("round_of_token", [1, None])
def test_a_login_that_only_one_end_considers_complete_fails(round_of_token: int | None) -> None:
    server = LoginServer()
    honest = server.authenticate
    rounds = 0

    async def authenticate(request: Any) -> SaslAuthenticateResponse:
        nonlocal rounds
        rounds += 1
        answer = await honest(request)
        answer.session_token = b"too early" if rounds == round_of_token else b""
        return answer

    server.authenticate = authenticate
    assert "one end takes the login for complete" in str(refused(server))


def test_an_unavailable_server_is_a_retriable_error_and_not_a_failed_login() -> None:
    server = LoginServer()

    async def handshake(request: Any) -> SaslHandshakeResponse:
        raise CallFailed(Status.UNAVAILABLE, "gone")

    server.handshake = handshake
    with pytest.raises(CallFailed) as failed:
        login(server)
    assert failed.value.error("x").retriable
