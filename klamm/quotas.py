"""Quotas of clients: whom they are for and what they bound (KIP-13, KIP-124, KIP-546, KIP-599, KIP-612). Names are
Kafka's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
ENTITY_TYPES: Final = (USER, CLIENT_ID, IP)

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
"""Bytes a second that each broker takes in."""
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
"""Bytes a second that each broker gives out."""
REQUEST_PERCENTAGE: Final = "request_percentage"
"""A share of each broker's time, in percent."""
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
"""Partitions a second that may be created and deleted."""
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"
"""Connections a second that each broker accepts."""

USER_AND_CLIENT_KEYS: Final = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)
"""The quotas that users and client ids may have."""
IP_KEYS: Final = (CONNECTION_CREATION_RATE,)
"""The quotas that addresses may have."""

QuotaEntity = tuple[tuple[str, str | None], ...]
"""(entity type, name), sorted by type. The name None: all of that type that have no quota of their own."""


def quota_entity(parts: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """The entity of these parts. Of two of a type the last counts, as with Kafka."""
    return tuple(sorted(dict(parts).items()))


def entity_text(entity: QuotaEntity) -> str:
    """`user=alice client-id=<default>`, for people."""
    return " ".join(f"{kind}={'<default>' if name is None else name}" for kind, name in entity)
