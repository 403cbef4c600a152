"""Quotas of clients (KIP-546)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from klamm.quotas import QuotaEntity, entity_text, quota_entity


@dataclass(frozen=True, slots=True)
class ClientQuotaEntity:
    """The entity that quotas are for: a user, a client id, a user's client id, or an address. `str` shows it as
    `user=alice`."""

    entries: QuotaEntity
    """Pairs of (type, name), sorted. The name None stands for all entities of the type that have no quota of their
    own.
    """

    @classmethod
    def of(cls, names: Mapping[str, str | None]) -> ClientQuotaEntity:
        """Returns the entity with these names by type: `user`, `client-id` and `ip`."""
        return cls(quota_entity(names.items()))

    def __str__(self) -> str:
        return entity_text(self.entries)


@dataclass(frozen=True, slots=True)
class ClientQuotaAlteration:
    """The changes of one entity's quotas."""

    entity: ClientQuotaEntity
    operations: Mapping[str, float | None]
    """The new values by quota key, such as producer_byte_rate. None removes the quota."""


@dataclass(frozen=True, slots=True)
class ClientQuotaFilterComponent:
    """The entity type, and the name of that type, that a filter requires."""

    entity_type: str
    name: str | None = None
    """The name. None means the default quotas of the type; with `any_name`, all names match."""
    any_name: bool = False

    def __post_init__(self) -> None:
        if self.any_name and self.name is not None:
            raise ValueError(f"any_name goes with no name: {self.name!r}")
