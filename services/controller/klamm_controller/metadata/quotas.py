"""Sets, removes and describes quotas of clients (KIP-546). The checks, their order and their error codes are those of
Kafka's ClientQuotaControlManager. The changes of one entity succeed or fail together."""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Iterable, Mapping
from typing import Final

from klamm.errors import BrokerError, ErrorCode
from klamm.quotas import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    ENTITY_TYPES,
    IP,
    IP_KEYS,
    PRODUCER_BYTE_RATE,
    USER_AND_CLIENT_KEYS,
    QuotaEntity,
    entity_text,
)
from klamm.setting import INT_MAX, LONG_MAX
from klamm.wire.quotas import entity_of, entity_parts
from klamm.wire.v1.controller_pb2 import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredClientQuotas,
    ClientQuotaOperation,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribedClientQuotas,
)
from klamm.wire.v1.metadata_pb2 import ClientQuotaRecord, MetadataRecord
from klamm_controller.metadata.decision import Decision, Refusal
from klamm_server.metadata.image import MetadataImage
from klamm_server.metadata.quotas import FilterComponent, described_quotas

_WHOLE_NUMBERS: Final = {
    PRODUCER_BYTE_RATE: LONG_MAX,
    CONSUMER_BYTE_RATE: LONG_MAX,
    CONNECTION_CREATION_RATE: INT_MAX,
}
"""The greatest value of each quota that must be a whole number."""
_FRACTION_MAX: Final = 1e-6
"""The largest fraction that a whole number may have, because quotas are floating-point numbers."""

_Outcome = list[MetadataRecord] | Refusal


def handle_alter_client_quotas(
    request: AlterClientQuotasRequest, image: MetadataImage
) -> Decision[AlterClientQuotasResponse]:
    """Sets and removes quotas. Makes no record for a quota that already has the value, or for the removal of a quota
    that is not set."""
    outcomes: dict[QuotaEntity, _Outcome] = {}
    for alteration in request.alterations:
        entity = entity_of(alteration.entity)
        if entity in outcomes:
            outcomes[entity] = _refused(f"entity {entity_text(entity)} is named twice")
        else:
            outcomes[entity] = _outcome(entity, alteration.operations, image)
    records = [record for outcome in outcomes.values() if isinstance(outcome, list) for record in outcome]
    results = [_result(entity, outcome) for entity, outcome in outcomes.items()]
    return Decision(
        records=() if request.validate_only else tuple(records), reply=AlterClientQuotasResponse(results=results)
    )


def describe_client_quotas(request: DescribeClientQuotasRequest, image: MetadataImage) -> DescribeClientQuotasResponse:
    """Returns the quotas that match the request's filter."""
    components = [
        FilterComponent(component.type, component.match_type, component.match if component.HasField("match") else None)
        for component in request.components
    ]
    try:
        found = described_quotas(image, components, strict=request.strict)
    except BrokerError as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message)
    return DescribeClientQuotasResponse(
        entries=[DescribedClientQuotas(entity=entity_parts(entity), values=dict(values)) for entity, values in found]
    )


def _refused(message: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REQUEST, message)


def _result(entity: QuotaEntity, outcome: _Outcome) -> AlteredClientQuotas:
    if isinstance(outcome, Refusal):
        return AlteredClientQuotas(entity=entity_parts(entity), error_code=outcome.code, error_message=outcome.message)
    return AlteredClientQuotas(entity=entity_parts(entity))


def _outcome(entity: QuotaEntity, operations: Iterable[ClientQuotaOperation], image: MetadataImage) -> _Outcome:
    try:
        return _records(entity, _changes(operations), image.client_quotas.get(entity, {}))
    except Refusal as refusal:
        return refusal


def _changes(operations: Iterable[ClientQuotaOperation]) -> dict[str, float | None]:
    """Returns the new value of each quota, or None for a quota to remove. Raises Refusal if a quota is named twice."""
    changes: dict[str, float | None] = {}
    for operation in operations:
        if operation.key in changes:
            raise _refused(f"quota {operation.key} is named twice")
        changes[operation.key] = operation.value if operation.HasField("value") else None
    return changes


def _records(
    entity: QuotaEntity, changes: Mapping[str, float | None], before: Mapping[str, float]
) -> list[MetadataRecord]:
    """Returns the records that change an entity's quotas. Raises Refusal if one is invalid."""
    keys = _keys_of(entity)
    records = []
    for key, value in changes.items():
        if value is None:
            if key in before:
                records.append(_record(entity, key, remove=True))
            continue
        _check(keys, key, value)
        if before.get(key) != value:
            records.append(_record(entity, key, value))
    return records


def _record(entity: QuotaEntity, key: str, value: float = 0.0, *, remove: bool = False) -> MetadataRecord:
    return MetadataRecord(
        client_quota=ClientQuotaRecord(entity=entity_parts(entity), key=key, value=value, remove=remove)
    )


def _keys_of(entity: QuotaEntity) -> tuple[str, ...]:
    """Returns the names of the quotas that the entity may have. Raises Refusal if the entity is invalid."""
    names = dict(entity)
    for kind, name in entity:
        if kind not in ENTITY_TYPES:
            raise _refused(f"entity type {kind!r} is unknown: expected one of {', '.join(ENTITY_TYPES)}")
        if name == "":
            raise _refused(f"entity type {kind!r} has an empty name")
    if not names:
        raise _refused("the entity is empty: expected a user, a client-id or both, or an ip")
    if IP not in names:
        return USER_AND_CLIENT_KEYS
    if len(names) > 1:
        raise _refused(f"entity type {IP!r} cannot be combined with other entity types")
    _check_address(names[IP])
    return IP_KEYS


def _check_address(ip: str | None) -> None:
    """Raises Refusal unless `ip` is an address or None. Kafka also accepts host names, which its controller
    resolves."""
    if ip is None:
        return
    try:
        ipaddress.ip_address(ip)
    except ValueError:
        raise _refused(f"ip {ip!r} is not an address") from None


def _check(keys: tuple[str, ...], key: str, value: float) -> None:
    """Raises Refusal unless the quota is one of `keys` and its value is in range."""
    if key not in keys:
        raise _refused(f"quota {key!r} is unknown for the entity: expected one of {', '.join(keys)}")
    if not (value > 0 and math.isfinite(value)):
        raise _refused(f"quota {key}={value:g}: expected more than 0")
    greatest = _WHOLE_NUMBERS.get(key)
    if greatest is None:
        return
    if value > greatest:
        raise _refused(f"quota {key}={value:g}: expected at most {greatest}")
    if value % 1 > _FRACTION_MAX:
        raise _refused(f"quota {key}={value!r}: expected a whole number")
