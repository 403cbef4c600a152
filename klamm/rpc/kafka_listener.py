"""The Kafka listener of a broker, as a client knows it."""

from __future__ import annotations

from typing import NamedTuple


class KafkaListener(NamedTuple):
    """An address, and the broker that the client expects there."""

    address: str
    """Its host:port."""
    cluster_id: str
    node_id: int
