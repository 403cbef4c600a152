"""Clients that came to a port not meant for them, told by the first bytes that they sent, or that were refused there.

If a server merely closes the connection, its user looks for the mistake everywhere else. So the server logs once which
protocol came and which port it should use. It also tells the client, if the client's protocol allows that."""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable
from typing import Final

FIRST_BYTES: Final = 4
"""The number of bytes that identify a protocol."""
REPEAT_AFTER_MS: Final = 60_000
"""The time in which the same kind of client is logged only once."""

_METHODS: Final = frozenset({b"GET ", b"HEAD", b"POST", b"PUT ", b"OPTI", b"DELE", b"PATC", b"CONN", b"TRAC"})


class ClientProtocol(enum.Enum):
    """The kinds of clients that send the first bytes, with their names in the log."""

    GRPC = "a gRPC client"
    HTTP = "an HTTP client"
    TLS = "a TLS client"
    KAFKA = "a Kafka client"
    WITHOUT_TLS = "a client without TLS"


def recognised(first: bytes | bytearray) -> ClientProtocol | None:
    """Returns the protocol of a client by its first four bytes, or None. A length below 16 MiB is taken for Kafka's
    protocol."""
    first = bytes(first[:FIRST_BYTES])
    if first == b"PRI ":
        return ClientProtocol.GRPC
    if first in _METHODS:
        return ClientProtocol.HTTP
    if first[:2] == b"\x16\x03":
        return ClientProtocol.TLS
    return ClientProtocol.KAFKA if len(first) == FIRST_BYTES and first[0] == 0 else None


def http_refusal(advice: str) -> bytes:
    """Returns a whole HTTP response."""
    body = f"{advice}\n".encode()
    head = f"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}"
    return f"{head}\r\nConnection: close\r\n\r\n".encode() + body


class WrongProtocolLog:
    """Logs the clients that came to a wrong port, each kind only once in a while."""

    def __init__(self, log: logging.Logger, here: str, now_ms: Callable[[], int]) -> None:
        """Logs with `log`. `here` describes the port in words: "the metrics port 9404"."""
        self._log = log
        self._here = here
        self._now_ms = now_ms
        self._reported_ms: dict[str, int] = {}

    def report(self, protocol: ClientProtocol, peer: str, advice: str) -> None:
        """Logs a client, unless the same kind was logged recently. `advice` says which port to use."""
        if self._is_due(protocol.value):
            self._log.warning("%s from %s connected to %s: %s", protocol.value, peer, self._here, advice)

    def report_refused(self, what: str, peer: str, reason: str) -> None:
        """Logs a refusal, unless one for the same reason was logged recently. There must be only few reasons, so they
        must not contain a client's own text."""
        if self._is_due(f"{what}: {reason}"):
            self._log.warning("%s of %s failed at %s: %s", what, peer, self._here, reason)

    def _is_due(self, what: str) -> bool:
        now_ms = self._now_ms()
        reported_ms = self._reported_ms.get(what)
        if reported_ms is not None and now_ms - reported_ms < REPEAT_AFTER_MS:
            return False
        self._reported_ms[what] = now_ms
        return True
