"""Converts the entities of quotas between messages and values."""

from __future__ import annotations

from collections.abc import Iterable

from klamm.quotas import QuotaEntity, quota_entity
from klamm.wire.v1.metadata_pb2 import QuotaEntityPart


def entity_of(parts: Iterable[QuotaEntityPart]) -> QuotaEntity:
    """Returns the entity that a record or request names."""
    return quota_entity((part.type, part.name if part.HasField("name") else None) for part in parts)


def entity_parts(entity: QuotaEntity) -> list[QuotaEntityPart]:
    """Returns the parts of an entity for a record or message."""
    return [QuotaEntityPart(type=kind, name=name) for kind, name in entity]
