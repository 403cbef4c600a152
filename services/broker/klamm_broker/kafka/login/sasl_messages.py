"""SaslHandshake and SaslAuthenticate (KIP-43, KIP-152, KIP-368), read and written by hand, so that no other code reads
bytes of clients that have not logged in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from klamm.errors import ErrorCode
from klamm_broker.kafka.api import ApiKey, Versions, api
from klamm_broker.kafka.codec.wire import AnswerWriter, Part
from klamm_broker.kafka.requests import Request
from klamm_server.security.operations import Check
from klamm_server.security.sasl.sasl_authenticator import AuthenticateReply

_LIFETIME_SINCE: Final = 1
_OUT_OF_PLACE: Final = "SaslAuthenticate request received after successful authentication"
"""Kafka's error text. It is also used on listeners without logins."""


def requested_mechanism(request: Request) -> str:
    """Returns the mechanism of a SaslHandshake. Raises MalformedRequestError."""
    reader = request.body()
    mechanism = reader.string()
    reader.expect_end()
    return mechanism


def auth_bytes(request: Request) -> bytes:
    """Returns the bytes of a SaslAuthenticate. Raises MalformedRequestError."""
    reader = request.body()
    data = bytes(reader.bytes_())
    reader.skip_tagged_fields()
    reader.expect_end()
    return data


def handshake_answer(code: ErrorCode, mechanisms: Sequence[str]) -> list[Part]:
    """Returns the body of the answer to a SaslHandshake."""
    writer = AnswerWriter(flexible=False)
    writer.int16(code)
    writer.array(mechanisms, writer.string)
    return writer.parts()


def authenticate_answer(version: int, reply: AuthenticateReply) -> list[Part]:
    """Returns the body of the answer to a SaslAuthenticate of that version."""
    writer = AnswerWriter(flexible=version >= 2)
    writer.int16(reply.code)
    writer.nullable_string(reply.message or None)
    writer.bytes_(reply.auth_bytes)
    if version >= _LIFETIME_SINCE:
        writer.int64(reply.session_lifetime_ms)
    writer.tagged_fields()
    return writer.parts()


# After SaslHandshake version 0, a client sends its tokens without frames. As in Kafka, the broker lists version 0 but
# does not answer it.
@api(ApiKey.SASL_HANDSHAKE, Versions(1, 1, flexible=2, unsupported_min=0), Check())
def handshake_out_of_place() -> list[Part]:
    """Returns Kafka's answer to a SaslHandshake outside a login. `SaslClients` answers the others."""
    return handshake_answer(ErrorCode.ILLEGAL_SASL_STATE, ())


@api(ApiKey.SASL_AUTHENTICATE, Versions(0, 2, flexible=2), Check())
def authenticate_out_of_place(request: Request) -> list[Part]:
    """Returns Kafka's answer to a SaslAuthenticate outside a login. `SaslClients` answers the others."""
    reply = AuthenticateReply(code=ErrorCode.ILLEGAL_SASL_STATE, message=_OUT_OF_PLACE)
    return authenticate_answer(request.version, reply)
