"""The alert of a TLS handshake that fails: it tells a client why (RFC 8446, section 6.2).

OpenSSL writes the alert to where the event loop takes bytes from. But asyncio and uvloop close a connection as soon as
its handshake has failed, and never look there again. So the error carries the alert, and the server that accepted the
connection sends it.
"""

from __future__ import annotations

import ssl
from typing import Any


class HandshakeFailed(ssl.SSLError):
    """OpenSSL's own error, with the bytes that the client has not had yet."""

    def __init__(self, error: ssl.SSLError, alert: bytes) -> None:
        super().__init__(*error.args)
        self.reason = error.reason
        self.verify_message: str | None = getattr(error, "verify_message", None)
        self.alert = alert


class _Handshake(ssl.SSLObject):
    outgoing: ssl.MemoryBIO

    def do_handshake(self) -> None:
        """Raises HandshakeFailed."""
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            raise HandshakeFailed(error, self.outgoing.read()) from None


class AlertingContext(ssl.SSLContext):
    """A context whose handshakes in memory, which are those of event loops, fail with HandshakeFailed."""

    sslobject_class = _Handshake

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *args: Any, **named: Any) -> _Handshake:
        """Returns what ssl.SSLContext.wrap_bio returns, with the outgoing bytes kept."""
        made = super().wrap_bio(incoming, outgoing, *args, **named)
        assert isinstance(made, _Handshake)
        made.outgoing = outgoing
        return made
