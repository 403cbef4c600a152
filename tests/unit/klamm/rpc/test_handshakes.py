"""Tests the translation of gRPC's texts about failed handshakes."""

from __future__ import annotations

import pytest

from klamm.errors import SslAuthenticationError
from klamm.rpc import handshakes
from klamm.rpc.handshakes import HandshakeFailed, is_worth_asking, why_failed
from klamm.rpc.status import Status

CONNECTING = "failed to connect to all addresses; last error: "
BORING = (
    f"{CONNECTING}UNKNOWN: ipv4:1.2.3.4:5: Tls handshake failed (TSI_PROTOCOL_FAILURE): SSL_ERROR_SSL: error:1000007d:"
)
OPENSSL = "SSL routines:OPENSSL_internal:"


@pytest.mark.parametrize(
    ("details", "why"),
    [
        (f"{BORING}{OPENSSL}CERTIFICATE_VERIFY_FAILED: certificate has expired: OK", handshakes.EXPIRED),
        (f"{BORING}{OPENSSL}CERTIFICATE_VERIFY_FAILED: self signed certificate: OK", handshakes.FOREIGN_CA),
        (f"{BORING}{OPENSSL}CERTIFICATE_VERIFY_FAILED: unable to get local issuer certificate", handshakes.FOREIGN_CA),
        (
            f"{BORING}{OPENSSL}CERTIFICATE_VERIFY_FAILED: certificate is not yet valid: OK",
            "its certificate is not accepted: certificate is not yet valid",
        ),
        (f"{BORING}{OPENSSL}WRONG_VERSION_NUMBER: Invalid certificate verification context: OK", handshakes.PLAINTEXT),
        (f"{BORING}{OPENSSL}TLSV1_ALERT_PROTOCOL_VERSION", "the TLS handshake failed: TLSV1_ALERT_PROTOCOL_VERSION"),
        (f"{CONNECTING}UNAUTHENTICATED: Hostname Verification Check failed.", handshakes.OTHER_HOST),
        (f"{CONNECTING}Cannot check peer: missing selected ALPN property.", handshakes.NOT_GRPC),
        (f"{CONNECTING}Connection refused", None),
        ("Socket closed", None),
        ("the topic certificate has expired is not there", None),
    ],
)
def test_a_grpc_handshake_text_is_translated_into_an_explanation(details: str, why: str | None) -> None:
    assert why_failed(details) == why


@pytest.mark.parametrize(
    ("host", "details", "worth"),
    [
        ("1.2.3.4", f"{CONNECTING}Socket closed", True),
        ("::1", f"{CONNECTING}recvmsg: Connection reset by peer", True),
        ("localhost", f"{CONNECTING}Connection refused", True),
        ("1.2.3.4", f"{CONNECTING}Connection refused", False),
        ("::1", f"{CONNECTING}Connection refused", False),
        ("localhost", f"{CONNECTING}Network is unreachable", False),
        ("localhost", "Socket closed", False),  # the connection had been established
    ],
)
def test_a_server_is_probed_only_if_the_grpc_text_may_hide_a_handshake_failure(
    host: str, details: str, worth: bool
) -> None:
    assert is_worth_asking(host, details) is worth


def test_a_failed_handshake_error_names_the_server_and_the_reason() -> None:
    error = HandshakeFailed(Status.UNAVAILABLE, handshakes.EXPIRED).error("metadata at h:1")
    assert isinstance(error, SslAuthenticationError)
    assert str(error) == f"metadata at h:1: {handshakes.EXPIRED}"
    assert not error.retriable
