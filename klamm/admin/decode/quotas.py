"""Quotas of clients."""

from __future__ import annotations

from collections.abc import Iterable

from klamm.admin.types.quotas import ClientQuotaEntity
from klamm.wire.quotas import entity_of
from klamm.wire.v1.metadata_pb2 import QuotaEntityPart


def quota_entity(parts: Iterable[QuotaEntityPart]) -> ClientQuotaEntity:
    """The entity that quotas are for."""
    return ClientQuotaEntity(entity_of(parts))
