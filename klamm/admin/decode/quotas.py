"""Decodes the quotas of clients."""

from __future__ import annotations

from collections.abc import Iterable

from klamm.admin.types.quotas import ClientQuotaEntity
from klamm.wire.quotas import entity_of
from klamm.wire.v1.metadata_pb2 import QuotaEntityPart


def quota_entity(parts: Iterable[QuotaEntityPart]) -> ClientQuotaEntity:
    """Returns the entity that the quotas are for."""
    return ClientQuotaEntity(entity_of(parts))
