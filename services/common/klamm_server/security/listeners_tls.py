"""The keys and certificates of all listeners of a server, each read and watched once, for all its users."""

from __future__ import annotations

import asyncio
import logging

from klamm_server.config.server_config import ServiceConfig
from klamm_server.security.server_tls import ServerTls

log = logging.getLogger(__name__)


class ListenersTls:
    """The TLS of all listeners, which it reads when it is made. Raises ConfigError if files cannot be used."""

    def __init__(self, config: ServiceConfig) -> None:
        listeners = config.resolved_listeners()
        between_servers = listeners.between_servers.name
        self._by_name = {
            listener.name: ServerTls(
                listener.name, config.tls_settings(listener.name), between_servers=listener.name == between_servers
            )
            for listener in listeners.bound
            if listener.security.is_encrypted
        }
        for name in self._by_name:
            if config.passes_over_client_auth(name):
                log.warning(
                    "ssl.client.auth has no effect on listener %s, whose clients log in: set"
                    " listener.name.%s.ssl.client.auth instead",
                    name,
                    name.lower(),
                )
        self.between_servers = self._by_name.get(between_servers)
        """The TLS with which this server dials other servers, or None if these connections are not encrypted."""

    def of(self, listener: str) -> ServerTls | None:
        """Returns the keys and certificates of that listener, or None if it has no TLS."""
        return self._by_name.get(listener)

    async def watch(self) -> None:
        """Keeps all of them up to date until it is cancelled."""
        await asyncio.gather(*(server_tls.watch() for server_tls in self._by_name.values()))
