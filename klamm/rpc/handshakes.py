"""Explains why a TLS handshake failed, for the person who has to fix it.

gRPC's message has the names of BoringSSL's errors, and is about the last address that it tried. It does not say whether
the server refused the client's certificate. `ask_server` finds this out with another handshake."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import ssl
import struct
from typing import Final

from klamm.errors import SslAuthenticationError
from klamm.rpc.status import CallFailed

FOREIGN_CA: Final = "its certificate comes from a CA that this client does not trust (ssl.truststore.location)"
OTHER_HOST: Final = "its certificate does not name the host that this client dialled"
EXPIRED: Final = "its certificate has expired"
PLAINTEXT: Final = "it does not speak TLS (security.protocol=PLAINTEXT)"
WANTS_CERTIFICATE: Final = "it requires a certificate of its clients (ssl.keystore.location)"
REFUSES_CERTIFICATE: Final = "it does not accept this client's certificate (ssl.keystore.location)"
NOT_GRPC: Final = "it speaks TLS but not gRPC: the port may belong to another listener"

SPEAKS_TLS: Final = "it speaks TLS, which is security.protocol=SSL or SASL_SSL"
SPEAKS_KAFKA: Final = "it speaks Kafka's protocol; this client connects to the gRPC listener of a Klamm broker"

_VERIFY_FAILED: Final = re.compile(r"CERTIFICATE_VERIFY_FAILED: (.*?)(?:: OK)?$")
_FOREIGN: Final = re.compile("issuer certificate|self.signed|first certificate|signature failure")
_REFUSED: Final = "Connection refused"
_NOT_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"})
_CLOSED: Final = ("Socket closed", "Connection reset", "Broken pipe")
_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
_API_VERSIONS: Final = struct.pack(">ihhih", 10, 18, 0, 1, -1)
"""Kafka's ApiVersionsRequest of version 0: size, API key, version, correlation id 1, and no client id."""
_CORRELATION_ID: Final = struct.pack(">i", 1)
_ASKING_TIMEOUT_S: Final = 2.0
_UNANSWERED: Final = (OSError, TimeoutError, RuntimeError)
"""The errors if no server answers. When functions of `atexit` run, asyncio cannot look up a name (RuntimeError)."""


class HandshakeFailed(CallFailed):
    """The two ends of a connection did not accept each other. A retry would not help."""

    def error(self, target: str) -> SslAuthenticationError:
        """Returns the error for the caller of `target`."""
        return SslAuthenticationError(f"{target}: {self.details}")


def why_failed(details: str) -> str | None:
    """Returns the reason of a failed handshake from gRPC's message. Returns None if it is not about a handshake, or if
    the server closed the connection without a reason."""
    if verified := _VERIFY_FAILED.search(details):
        return _not_verified(verified[1])
    if "Hostname Verification Check failed" in details:
        return OTHER_HOST
    if "missing selected ALPN" in details:
        return NOT_GRPC
    if "WRONG_VERSION_NUMBER" in details:
        return PLAINTEXT
    if "SSL_ERROR_SSL" in details:
        return f"the TLS handshake failed: {details.rpartition('OPENSSL_internal:')[2]}"
    return None


def is_worth_asking(host: str, details: str) -> bool:
    """Whether gRPC's text may lack the reason why a connection failed. Either the server closed the connection without
    a reason, or the text is about the last address of the host name, where no server listens."""
    if "failed to connect" not in details:
        return False
    return any(text in details for text in _CLOSED) or (_REFUSED in details and not _is_address(host))


async def ask_server(host: str, port: int, context: ssl.SSLContext, *, shows_certificate: bool) -> str | None:
    """Makes a handshake with `context` and returns why it fails, or None if it succeeds or no server answers.
    `shows_certificate` tells whether `context` has a certificate.

    In TLS 1.3, a client finishes its handshake before the server has checked its certificate. A gRPC server then closes
    the connection without a reason. Otherwise, it begins to speak HTTP/2."""
    context.set_alpn_protocols(["h2"])
    try:
        async with asyncio.timeout(_ASKING_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(host, port, ssl=context)
            try:
                if writer.get_extra_info("ssl_object").selected_alpn_protocol() != "h2":
                    return NOT_GRPC
                writer.write(_PREFACE)
                if await reader.read(1):
                    return None
            finally:
                writer.transport.abort()
    except ssl.SSLError as error:
        return _why(error)
    except _UNANSWERED:
        return None
    return REFUSES_CERTIFICATE if shows_certificate else WANTS_CERTIFICATE


async def speaks_tls(host: str, port: int) -> bool:
    """Returns whether the server at the address speaks TLS, with any certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        async with asyncio.timeout(_ASKING_TIMEOUT_S):
            _, writer = await asyncio.open_connection(host, port, ssl=context)
            writer.transport.abort()
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")
    except _UNANSWERED:
        return False
    return True


async def speaks_kafka(host: str, port: int) -> bool:
    """Returns whether the server at the address answers a request of Kafka's protocol without TLS."""
    try:
        async with asyncio.timeout(_ASKING_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(_API_VERSIONS)
                return (await reader.readexactly(8))[4:] == _CORRELATION_ID
            finally:
                writer.transport.abort()
    except (*_UNANSWERED, asyncio.IncompleteReadError):
        return False


def _why(error: ssl.SSLError) -> str | None:
    """Returns the reason of a failed handshake from OpenSSL's error, like `why_failed`."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return OTHER_HOST if "mismatch" in error.verify_message else _not_verified(error.verify_message)
    return PLAINTEXT if error.reason in _NOT_TLS else None


def _not_verified(reason: str) -> str:
    if "expired" in reason:
        return EXPIRED
    return FOREIGN_CA if _FOREIGN.search(reason) else f"its certificate is not accepted: {reason}"


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
