"""Tests the messages of a login against kio's schemas."""

from __future__ import annotations

import io
import struct
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer

from klamm.errors import ErrorCode
from klamm_broker.kafka.api import ApiKey
from klamm_broker.kafka.codec import messages
from klamm_broker.kafka.codec.schemas import request_schema, response_schema
from klamm_broker.kafka.codec.wire import MalformedRequestError
from klamm_broker.kafka.login.sasl_messages import (
    auth_bytes,
    authenticate_answer,
    authenticate_out_of_place,
    handshake_answer,
    handshake_out_of_place,
    requested_mechanism,
)
from klamm_broker.kafka.requests import Request, parse_request
from klamm_broker.kafka.served_apis import SPOKEN
from klamm_server.security.sasl.sasl_authenticator import AuthenticateReply

VERSIONS = range(SPOKEN[ApiKey.SASL_AUTHENTICATE].max + 1)


def request(api_key: ApiKey, version: int, body: bytes) -> Request:
    tags = b"\x00" if version >= SPOKEN[api_key].flexible else b""
    return parse_request(memoryview(struct.pack(">hhih", api_key, version, 7, -1) + tags + body), "here")


def by_kio(api_key: ApiKey, version: int, **fields: Any) -> Request:
    schema, body = request_schema(api_key, version), io.BytesIO()
    entity_writer(schema)(body, messages._make(schema, fields))
    return request(api_key, version, body.getvalue())


def read_by_kio(api_key: ApiKey, version: int, parts: list[Any]) -> Any:
    data = b"".join(bytes(part) for part in parts)
    answer, size = entity_reader(response_schema(api_key, version))(memoryview(data), 0)
    assert size == len(data)
    return answer


def test_a_sasl_handshake_matches_kios_schema() -> None:
    assert requested_mechanism(by_kio(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN")) == "PLAIN"
    answer = read_by_kio(
        ApiKey.SASL_HANDSHAKE, 1, handshake_answer(ErrorCode.UNSUPPORTED_SASL_MECHANISM, ("PLAIN", "X"))
    )
    assert (answer.error_code, answer.mechanisms) == (33, ("PLAIN", "X"))


def test_version_0_of_sasl_handshake_is_advertised_but_refused() -> None:
    assert SPOKEN[ApiKey.SASL_HANDSHAKE].advertised_min == 0
    with pytest.raises(MalformedRequestError, match="version 0 of SASL_HANDSHAKE"):
        request(ApiKey.SASL_HANDSHAKE, 0, b"\x00\x05PLAIN")


@pytest.mark.parametrize("version", VERSIONS)
@given(data=st.binary(max_size=300))
def test_a_sasl_authenticate_matches_kios_schema(version: int, data: bytes) -> None:
    assert auth_bytes(by_kio(ApiKey.SASL_AUTHENTICATE, version, auth_bytes=data)) == data
    reply = AuthenticateReply(code=ErrorCode.NONE, auth_bytes=data, session_lifetime_ms=77)
    answer = read_by_kio(ApiKey.SASL_AUTHENTICATE, version, authenticate_answer(version, reply))
    assert (answer.error_code, answer.error_message, answer.auth_bytes) == (0, None, data)
    if version >= 1:
        assert answer.session_lifetime == timedelta(milliseconds=77)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_failed_login_is_answered_with_a_message_that_does_not_contain_the_cause(version: int) -> None:
    reply = AuthenticateReply(code=ErrorCode.SASL_AUTHENTICATION_FAILED, message="no", cause="canary", user="canary")
    parts = authenticate_answer(version, reply)
    answer = read_by_kio(ApiKey.SASL_AUTHENTICATE, version, parts)
    assert (answer.error_code, answer.error_message, answer.auth_bytes) == (58, "no", b"")
    assert b"canary" not in b"".join(bytes(part) for part in parts if isinstance(part, bytes | bytearray))


def test_sasl_requests_at_a_listener_without_logins_get_illegal_sasl_state() -> None:
    handshake = handshake_out_of_place()
    assert read_by_kio(ApiKey.SASL_HANDSHAKE, 1, handshake).error_code == ErrorCode.ILLEGAL_SASL_STATE
    for version in VERSIONS:
        answer = authenticate_out_of_place(by_kio(ApiKey.SASL_AUTHENTICATE, version, auth_bytes=b"x"))
        assert read_by_kio(ApiKey.SASL_AUTHENTICATE, version, answer).error_code == ErrorCode.ILLEGAL_SASL_STATE


@pytest.mark.parametrize("body", [b"", b"\x00", b"\xff\xff", b"\x00\x09PLAIN", b"\x00\x05PLAINx", b"\x00\x01\xff"])
def test_a_malformed_sasl_handshake_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedRequestError):
        requested_mechanism(request(ApiKey.SASL_HANDSHAKE, 1, body))


@pytest.mark.parametrize("version", VERSIONS)
@given(body=st.binary(max_size=40))
def test_any_bytes_of_a_sasl_authenticate_are_read_or_malformed(version: int, body: bytes) -> None:
    try:
        data = auth_bytes(request(ApiKey.SASL_AUTHENTICATE, version, body))
    except MalformedRequestError:
        return
    assert len(data) < len(body)
