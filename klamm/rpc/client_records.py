"""Selects whether and how a client connects to the Kafka listeners of brokers, from its settings."""

from __future__ import annotations

from klamm.config import ClientConfig
from klamm.rpc.login import SaslSource
from klamm.rpc.record_channel import Dialler


def record_dialler(config: ClientConfig, sasl: SaslSource | None) -> Dialler | None:
    """Returns the dialler of a client, or None if all its requests go by gRPC.

    gRPC encrypts faster than asyncio, whose TLS copies the records again. And a frame cannot carry the context of a
    trace."""
    if config.is_encrypted or config.tracing_enable:
        return None
    return Dialler(
        config.client_id,
        sasl=sasl,
        setup_timeout_ms=config.socket_connection_setup_timeout_ms,
        answer_max_bytes=config.receive_message_max_bytes,
    )
