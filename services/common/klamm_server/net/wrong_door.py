"""Clients that came to a port not meant for them, told by the first bytes that they sent, or that were refused there.

A server that merely closes the connection has its user look for the mistake in every other place first. So it says
once what came and where to go instead: in its log, and to the client where its protocol has words for it.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable
from typing import Final

FIRST_BYTES: Final = 4
"""Enough to tell."""
REPEAT_AFTER_MS: Final = 60_000
"""A client that comes again and again is logged once in this time."""

_METHODS: Final = frozenset({b"GET ", b"HEAD", b"POST", b"PUT ", b"OPTI", b"DELE", b"PATC", b"CONN", b"TRAC"})


class Visitor(enum.Enum):
    """The kinds of clients that speak first at all of our ports, as a log calls them."""

    GRPC = "a gRPC client"
    HTTP = "an HTTP client"
    TLS = "a TLS client"
    KAFKA = "a Kafka client"
    WITHOUT_TLS = "a client without TLS"


def recognised(first: bytes | bytearray) -> Visitor | None:
    """Judges by the first four bytes. Any length below 16 MiB is believed to be Kafka's."""
    first = bytes(first[:FIRST_BYTES])
    if first == b"PRI ":
        return Visitor.GRPC
    if first in _METHODS:
        return Visitor.HTTP
    if first[:2] == b"\x16\x03":
        return Visitor.TLS
    return Visitor.KAFKA if len(first) == FIRST_BYTES and first[0] == 0 else None


def http_refusal(advice: str) -> bytes:
    """A whole response."""
    body = f"{advice}\n".encode()
    head = f"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}"
    return f"{head}\r\nConnection: close\r\n\r\n".encode() + body


class Porter:
    """Logs who came to a wrong port, each kind of visitor once in a while."""

    def __init__(self, log: logging.Logger, here: str, now_ms: Callable[[], int]) -> None:
        """`here` is the port, in words: "the metrics port 9404"."""
        self._log = log
        self._here = here
        self._now_ms = now_ms
        self._reported_ms: dict[str, int] = {}

    def report(self, visitor: Visitor, peer: str, advice: str) -> None:
        """Logs it, unless it was logged just before. `advice` tells where to go."""
        if self._is_news(visitor.value):
            self._log.warning("%s from %s connected to %s: %s", visitor.value, peer, self._here, advice)

    def report_refused(self, what: str, peer: str, reason: str) -> None:
        """Logs that this was refused, unless one was for the same reason just before. Reasons are few: they must not be
        a visitor's own words."""
        if self._is_news(f"{what}: {reason}"):
            self._log.warning("%s of %s failed at %s: %s", what, peer, self._here, reason)

    def _is_news(self, what: str) -> bool:
        now_ms = self._now_ms()
        reported_ms = self._reported_ms.get(what)
        if reported_ms is not None and now_ms - reported_ms < REPEAT_AFTER_MS:
            return False
        self._reported_ms[what] = now_ms
        return True
