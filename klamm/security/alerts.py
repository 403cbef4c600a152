"""The alert of a TLS handshake that fails: it tells a client why (RFC 8446, section 6.2).

OpenSSL writes the alert to the buffer of outgoing bytes. But asyncio and uvloop close a connection as soon as its
handshake has failed, without sending these bytes. So the error carries the alert, and the server that accepted the
connection sends it."""

from __future__ import annotations

import ssl
from typing import Any


class HandshakeFailed(ssl.SSLError):
    """OpenSSL's error of a failed handshake, with the bytes that were not sent to the client yet."""

    def __init__(self, error: ssl.SSLError, alert: bytes) -> None:
        super().__init__(*error.args)
        self.reason = error.reason
        self.verify_message: str | None = getattr(error, "verify_message", None)
        self.alert = alert


class _Handshake(ssl.SSLObject):
    outgoing: ssl.MemoryBIO

    def do_handshake(self) -> None:
        """Runs the handshake. Raises HandshakeFailed."""
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            raise HandshakeFailed(error, self.outgoing.read()) from None


class AlertingContext(ssl.SSLContext):
    """A TLS context whose in-memory handshakes, as event loops make them, fail with HandshakeFailed."""

    sslobject_class = _Handshake

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *args: Any, **named: Any) -> _Handshake:
        """Returns what ssl.SSLContext.wrap_bio returns, with the outgoing bytes kept."""
        made = super().wrap_bio(incoming, outgoing, *args, **named)
        assert isinstance(made, _Handshake)
        made.outgoing = outgoing
        return made
