"""The keys and certificates of one client, which may change while it runs."""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime

from klamm.config import ClientConfig
from klamm.errors import ConfigError
from klamm.security.material import TlsMaterial
from klamm.security.reload import WatchedMaterial

log = logging.getLogger(__name__)


class ClientTls:
    """A `klamm.rpc.grpc_transport.TlsSource` for clients. It checks the files at the first call after each
    `ssl.reload.interval.ms`, because a client without calls needs no new certificate.

    Raises ConfigError if the settings name no usable files."""

    def __init__(self, config: ClientConfig) -> None:
        self._watched = WatchedMaterial(config, now=datetime.now(UTC))
        self._interval_s = config.ssl_reload_interval_ms / 1000
        self._look_again = time.monotonic() + self._interval_s

    @property
    def version(self) -> int:
        if time.monotonic() >= self._look_again:
            self._refresh()
        return self._watched.version

    @property
    def material(self) -> TlsMaterial:
        return self._watched.material

    def _refresh(self) -> None:
        self._look_again = time.monotonic() + self._interval_s
        try:
            if self._watched.refresh(datetime.now(UTC)):
                log.info("keys and certificates changed: new connections use them")
        except ConfigError as error:
            log.warning("could not load the changed keys and certificates, keeping the old ones: %s", error)


def client_tls(config: ClientConfig) -> ClientTls | None:
    """Returns the keys and certificates for a client's connections, or None if it does not use TLS."""
    return ClientTls(config) if config.is_encrypted else None
