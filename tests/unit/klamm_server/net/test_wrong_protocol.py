from __future__ import annotations

import logging

import pytest

from klamm_server.net.wrong_protocol import REPEAT_AFTER_MS, ClientProtocol, WrongProtocolLog, recognised


@pytest.mark.parametrize(
    ("first", "protocol"),
    [
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", ClientProtocol.GRPC),
        (b"GET / HTTP/1.1\r\n", ClientProtocol.HTTP),
        (b"POST /topics HTTP/1.1\r\n", ClientProtocol.HTTP),
        (b"OPTIONS * HTTP/1.1\r\n", ClientProtocol.HTTP),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", ClientProtocol.TLS),
        (b"\0\0\0\x24\0\x12\0\x03", ClientProtocol.KAFKA),
        (b"\0\0\0", None),
        (b"GE", None),
        (b"SSH-2.0-OpenSSH", None),
        (b"", None),
    ],
)
def test_clients_of_other_protocols_are_recognized_by_their_first_bytes(
    first: bytes, protocol: ClientProtocol | None
) -> None:
    assert recognised(first) is protocol


def test_each_kind_of_wrong_client_is_logged_once_per_interval(caplog: pytest.LogCaptureFixture) -> None:
    times_ms = iter((0, 1, REPEAT_AFTER_MS - 1, REPEAT_AFTER_MS, REPEAT_AFTER_MS))
    wrong_protocols = WrongProtocolLog(
        logging.getLogger("wrong-protocol-test"), "the Kafka listener 9092", lambda: next(times_ms)
    )
    said = []
    for _ in range(4):
        wrong_protocols.report(ClientProtocol.GRPC, "192.0.2.1", "go to 9094")
        said.append(len(caplog.messages))
    assert said == [1, 1, 1, 2]
    wrong_protocols.report(ClientProtocol.TLS, "192.0.2.1", "go")
    assert caplog.messages[0] == "a gRPC client from 192.0.2.1 connected to the Kafka listener 9092: go to 9094"
    assert len(caplog.messages) == 3


def test_each_reason_of_a_refusal_is_logged_once_per_interval(caplog: pytest.LogCaptureFixture) -> None:
    times_ms = iter([0, 1, 2, REPEAT_AFTER_MS])
    wrong_protocols = WrongProtocolLog(
        logging.getLogger("wrong-protocol-test"), "the Kafka listener 9092", lambda: next(times_ms)
    )
    for reason in ("expired", "expired", "foreign", "expired"):
        wrong_protocols.report_refused("a TLS handshake", "192.0.2.1", reason)
    assert caplog.messages == [
        f"a TLS handshake of 192.0.2.1 failed at the Kafka listener 9092: {reason}"
        for reason in ("expired", "foreign", "expired")
    ]
