"""Quotas of clients: their entities and their keys (KIP-13, KIP-124, KIP-546, KIP-599, KIP-612). Names are Kafka's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
ENTITY_TYPES: Final = (USER, CLIENT_ID, IP)

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
"""Produced bytes per second at each broker."""
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
"""Fetched bytes per second from each broker."""
REQUEST_PERCENTAGE: Final = "request_percentage"
"""The share of each broker's request time, in percent."""
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
"""Partitions that are created and deleted per second."""
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"
"""Connections per second that each broker accepts."""

USER_AND_CLIENT_KEYS: Final = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)
"""The quotas that users and client ids may have."""
IP_KEYS: Final = (CONNECTION_CREATION_RATE,)
"""The quotas that addresses may have."""

QuotaEntity = tuple[tuple[str, str | None], ...]
"""Pairs of (entity type, name), sorted by type. The name None stands for all entities of the type that have no quota of
their own."""


def quota_entity(parts: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """Returns the entity with these parts. If a type occurs twice, the last part counts, as in Kafka."""
    return tuple(sorted(dict(parts).items()))


def entity_text(entity: QuotaEntity) -> str:
    """Returns the entity as text for users, for example `user=alice client-id=<default>`."""
    return " ".join(f"{kind}={'<default>' if name is None else name}" for kind, name in entity)
