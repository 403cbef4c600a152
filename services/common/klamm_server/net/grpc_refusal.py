"""Answers a gRPC client that dialled the wrong port: each of its calls ends with UNIMPLEMENTED and a message.

Implements only the necessary part of HTTP/2 (RFC 9113). It skips frames without reading their content, acknowledges
settings and pings, and answers a HEADERS frame with trailers only. Simpler ways do not show the client a message. If
the server closes the connection, gRPC reports "Socket closed". After a GOAWAY, gRPC reconnects immediately, twenty
times a second.
"""

from __future__ import annotations

import struct
from typing import Final
from urllib.parse import quote

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

_FRAME: Final = struct.Struct(">BHBBI")
"""Length in 24 bits, type, flags, stream."""
_HEADERS, _SETTINGS, _PING = 1, 4, 6
_ACK = 1
_END_STREAM_AND_HEADERS = 5
_PING_BYTES: Final = 8
_UNIMPLEMENTED: Final = b"12"


class GrpcRefusal:
    """The refusal of one connection. It keeps at most a frame's header and a ping."""

    def __init__(self, message: str) -> None:
        self._trailers = _trailers(message)
        self._buffer = b""
        self._to_skip = 0
        self._preface_left = len(PREFACE)
        self._is_greeted = False

    def answer(self, data: bytes) -> bytes:
        """Returns the answer to these bytes, which may end anywhere. The first bytes must be the first of the
        connection."""
        if self._preface_left:
            seen, data = data[: self._preface_left], data[self._preface_left :]
            self._preface_left -= len(seen)
        reply = b"" if self._is_greeted else _frame(_SETTINGS, 0, 0)
        self._is_greeted = True
        self._buffer += data
        while self._buffer:
            if self._to_skip:
                skipped = min(self._to_skip, len(self._buffer))
                self._buffer = self._buffer[skipped:]
                self._to_skip -= skipped
                continue
            if len(self._buffer) < _FRAME.size:
                break
            high, low, kind, flags, stream = _FRAME.unpack_from(self._buffer)
            size = high << 16 | low
            end = _FRAME.size + min(size, _PING_BYTES if kind == _PING else 0)
            if len(self._buffer) < end:
                break
            reply += self._reply(kind, flags, stream, self._buffer[_FRAME.size : end])
            self._buffer = self._buffer[end:]
            self._to_skip = size - (end - _FRAME.size)
        return reply

    def _reply(self, kind: int, flags: int, stream: int, payload: bytes) -> bytes:
        if kind == _HEADERS:
            return _frame(_HEADERS, _END_STREAM_AND_HEADERS, stream, self._trailers)
        if kind in (_SETTINGS, _PING) and not flags & _ACK:
            return _frame(kind, _ACK, 0, payload)
        return b""


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return _FRAME.pack(len(payload) >> 16, len(payload) & 0xFFFF, kind, flags, stream) + payload


def _trailers(message: str) -> bytes:
    """Returns the trailers in HPACK (RFC 7541). Of its tables, only two static entries are used."""
    status_200, content_type = b"\x88", b"\x0f\x10"
    return b"".join(
        (
            status_200,
            content_type,
            _text(b"application/grpc"),
            b"\0",
            _text(b"grpc-status"),
            _text(_UNIMPLEMENTED),
            b"\0",
            _text(b"grpc-message"),
            _text(quote(message, safe=" !#$&'()*+,/:;=?@[]").encode()),
        )
    )


def _text(text: bytes) -> bytes:
    """Returns a text with its length: 7 bits, or 127 and the rest in groups of 7 bits."""
    length = len(text)
    if length < 0x7F:
        return bytes([length]) + text
    encoded, length = bytearray([0x7F]), length - 0x7F
    while length >= 0x80:
        encoded.append(length & 0x7F | 0x80)
        length >>= 7
    encoded.append(length)
    return bytes(encoded) + text
