"""Selects the quotas of clients that match a filter (KIP-546), for the gRPC and the Kafka API. The checks and their
order are Kafka's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from klamm.errors import ErrorCode
from klamm.quotas import ENTITY_TYPES, IP, QuotaEntity
from klamm_server.metadata.image import MetadataImage

_EXACT, _DEFAULT, _SPECIFIED = range(3)
_IS_NAMED: Final = {_EXACT: True, _DEFAULT: False, _SPECIFIED: False}
"""Whether a match type comes with a name."""


class FilterComponent(NamedTuple):
    """The condition for one entity type."""

    entity_type: str
    match_type: int
    """Kafka's number: 0 this name, 1 the default, 2 any name or the default."""
    match: str | None


def described_quotas(
    image: MetadataImage, components: Sequence[FilterComponent], *, strict: bool
) -> Iterator[tuple[QuotaEntity, Mapping[str, float]]]:
    """Returns the matching entities with their limits by key. With `strict`, entities must have no other types. Raises
    InvalidRequestError or UnsupportedVersionError."""
    _check(components)
    return (
        (entity, values)
        for entity, values in image.client_quotas.items()
        if (len(entity) == len(components) or not strict) and _is_meant(dict(entity), components)
    )


def _is_meant(entity: Mapping[str, str | None], components: Iterable[FilterComponent]) -> bool:
    return all(
        component.entity_type in entity
        and (component.match_type == _SPECIFIED or entity[component.entity_type] == component.match)
        for component in components
    )


def _check(components: Iterable[FilterComponent]) -> None:
    types: set[str] = set()
    for entity_type, match_type, match in components:
        if not entity_type or entity_type in types:
            raise ErrorCode.INVALID_REQUEST.exception(
                f"entity type {entity_type!r} is empty or repeated, expected each type once"
            )
        if entity_type not in ENTITY_TYPES:
            raise ErrorCode.UNSUPPORTED_VERSION.exception(f"entity type {entity_type!r} is unknown")
        if _IS_NAMED.get(match_type) is not (match is not None):
            raise ErrorCode.INVALID_REQUEST.exception(
                f"match type {match_type} with match {match!r}: expected 0 with a name, or 1 or 2 without"
            )
        types.add(entity_type)
    if IP in types and len(types) > 1:
        raise ErrorCode.INVALID_REQUEST.exception(f"entity type {IP!r} cannot be combined with other entity types")
