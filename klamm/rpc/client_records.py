"""Selects how a client connects to the Kafka listeners of brokers, from its settings."""

from __future__ import annotations

import ssl

from klamm.config import ClientConfig
from klamm.rpc.client_tls import ClientTls
from klamm.rpc.login import SaslSource
from klamm.rpc.record_channel import Dialler


class ClientTlsContexts:
    """A `klamm.rpc.record_channel.TlsContexts` of a client."""

    def __init__(self, config: ClientConfig, tls: ClientTls) -> None:
        self._config = config
        self._tls = tls

    @property
    def version(self) -> int:
        return self._tls.version

    def context(self) -> ssl.SSLContext:
        from klamm.security.contexts import client_context

        return client_context(self._config, self._tls.material)


def record_dialler(config: ClientConfig, tls: ClientTls | None, sasl: SaslSource | None) -> Dialler:
    """Returns the dialler of a client with these settings."""
    return Dialler(
        config.client_id,
        tls=None if tls is None else ClientTlsContexts(config, tls),
        sasl=sasl,
        setup_timeout_ms=config.socket_connection_setup_timeout_ms,
        answer_max_bytes=config.receive_message_max_bytes,
    )
