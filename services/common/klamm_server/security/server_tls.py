"""The keys and certificates of one listener, which change without a restart.

The files are read again, on a thread, every `ssl.reload.interval.ms`. If the new files are valid, the next connection
uses them. Otherwise, the server logs and counts the refusal, and the old ones stay in use. Both protocols get the TLS
context here for each connection that they accept, and channels to other servers for each call. So they need no
notification of a change.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from datetime import UTC, datetime
from typing import Final

from klamm.errors import ConfigError
from klamm.security.contexts import check_mutual_trust, server_context
from klamm.security.material import TlsMaterial, identity_changes
from klamm.security.reload import WatchedMaterial
from klamm.security.tls_settings import ListenerTlsSettings
from klamm_server.metrics.instruments import counters, gauges

log = logging.getLogger(__name__)

RELOADS: Final = counters(
    "klamm_certificate_reloads",
    "Changes of a listener's key and certificate files. The result is loaded or refused",
    ("listener", "result"),
)
EXPIRES: Final = gauges(
    "klamm_certificate_expires_seconds",
    "Time until the certificate of a listener expires",
    ("listener",),
)
_END: Final = "-----END CERTIFICATE-----"
LOADED: Final = "loaded"
REFUSED: Final = "refused"


class ServerTls:
    """The keys and certificates of a listener's connections. `watch` keeps them up to date.

    With `between_servers`, this server also shows them when it dials other servers, which must accept them. Raises
    ConfigError if the settings name no usable files."""

    def __init__(self, listener: str, settings: ListenerTlsSettings, *, between_servers: bool = False) -> None:
        self.listener = listener
        self.settings = settings
        self._between_servers = between_servers
        self._watched = WatchedMaterial(settings, now=datetime.now(UTC), check=self._check)
        self._context: ssl.SSLContext | None = None
        self._context_version = -1
        for result in (LOADED, REFUSED):
            RELOADS.labels(listener, result)
        EXPIRES.labels(listener).set_function(self._valid_for_s)

    @property
    def version(self) -> int:
        """A number that grows with every change of `material`."""
        return self._watched.version

    @property
    def material(self) -> TlsMaterial:
        """Returns the keys and certificates for the next connection."""
        return self._watched.material

    @property
    def own_certificate(self) -> str:
        """Returns the certificate, in PEM, that the owner of the key shows: the first one of the chain."""
        return self.material.chain.partition(_END)[0] + _END

    def server_context(self) -> ssl.SSLContext:
        """Returns the TLS context of the next connection that is accepted."""
        version = self.version
        if self._context is None or self._context_version != version:
            self._context, self._context_version = server_context(self.settings, self.material), version
        return self._context

    async def watch(self) -> None:
        """Checks the files regularly until it is cancelled."""
        while True:
            await asyncio.sleep(self.settings.ssl_reload_interval_ms / 1000)
            await asyncio.to_thread(self.refresh)

    def refresh(self) -> None:
        """Checks the files once."""
        try:
            if not self._watched.refresh(datetime.now(UTC)):
                return
        except ConfigError as error:
            RELOADS.labels(self.listener, REFUSED).inc()
            log.error(
                "kept the old keys and certificates of listener %s, because the new ones cannot be used: %s",
                self.listener,
                error,
            )
            return
        RELOADS.labels(self.listener, LOADED).inc()
        log.info("loaded new keys and certificates of listener %s", self.listener)

    def _check(self, old: TlsMaterial | None, new: TlsMaterial) -> None:
        server_context(self.settings, new)
        if self._between_servers:
            check_mutual_trust(self.settings, new)
        changes = None if old is None else identity_changes(old, new)
        if changes is None:
            return
        if changes.subject and not self.settings.ssl_allow_dn_changes:
            raise ConfigError(
                f"the new certificate has the subject {changes.subject}, but ssl.allow.dn.changes is false"
            )
        if changes.names and not self.settings.ssl_allow_san_changes:
            missing = ", ".join(sorted(changes.names))
            raise ConfigError(f"the new certificate lacks {missing}, but ssl.allow.san.changes is false")

    def _valid_for_s(self) -> float:
        expires = self.material.expires
        return 0.0 if expires is None else expires.timestamp() - time.time()
