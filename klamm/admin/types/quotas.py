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
    """(type, name), sorted; the name None: all of that type that have no quota of their own."""

    @classmethod
    def of(cls, names: Mapping[str, str | None]) -> ClientQuotaEntity:
        """Names by type: `user`, `client-id` and `ip`."""
        return cls(quota_entity(names.items()))

    def __str__(self) -> str:
        return entity_text(self.entries)


@dataclass(frozen=True, slots=True)
class ClientQuotaAlteration:
    """The changes of one entity's quotas."""

    entity: ClientQuotaEntity
    operations: Mapping[str, float | None]
    """Bounds by key, as producer_byte_rate; None: removed."""


@dataclass(frozen=True, slots=True)
class ClientQuotaFilterComponent:
    """What an entity must have of one type."""

    entity_type: str
    name: str | None = None
    """The name; None: the default's quotas, or with `any_name` those of whatever name."""
    any_name: bool = False

    def __post_init__(self) -> None:
        if self.any_name and self.name is not None:
            raise ValueError(f"any_name goes with no name: {self.name!r}")
