"""Both ends of connections with TLS, for listeners with a handler of the test."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from klamm.security.contexts import client_context, server_context
from klamm.security.dev_certificates import SignedKey
from klamm.security.material import load_material
from klamm.security.principal_rules import PrincipalRules
from klamm.security.tls_settings import ListenerTlsSettings, TlsSettings
from klamm.setting import parse
from klamm_broker.kafka.net.handshake_limit import HandshakeLimit
from klamm_broker.kafka.net.tls_clients import TlsClients
from tests.support import certificates


class TlsWorld:
    """A directory with the certificates of a listener and of its clients."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def clients(
        self, signed: SignedKey | None = None, *, rules: str = "DEFAULT", handshakes_max: int = 100, **settings: str
    ) -> TlsClients:
        """Returns the TLS clients of a listener with these settings. `settings` have underscores for dots."""
        dotted = {name.replace("_", "."): text for name, text in settings.items()}
        stores = certificates.write_stores(self._directory / "server", signed or certificates.server())
        given = ListenerTlsSettings.parse({**stores.settings(), **dotted})
        context = server_context(given, load_material(given, now=datetime.now(UTC)))
        return TlsClients(
            lambda: context,
            PrincipalRules.parse(rules),
            timeout_ms=given.ssl_handshake_timeout_ms,
            limit=HandshakeLimit(handshakes_max),
        )

    def dialler(self, signed: SignedKey | None = None) -> ssl.SSLContext:
        """Returns a client's TLS context, with the certificate `signed` or without one."""
        stores = certificates.write_stores(self._directory / "client", signed or certificates.client())
        given = stores.settings() if signed else {"ssl.truststore.location": str(stores.truststore)}
        values = TlsSettings(**parse(TlsSettings, given))
        # The client's clock is late, so that the listener has to find out that a certificate has expired.
        return client_context(values, load_material(values, now=certificates.NOW - timedelta(minutes=1)))
