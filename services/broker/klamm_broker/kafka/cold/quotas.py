"""Answers requests about clients' quotas (KIP-546). AlterClientQuotas is forwarded to the active controller.
DescribeClientQuotas is answered from this broker's metadata."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from klamm.acls import ResourceType
from klamm.errors import BrokerError, ErrorCode
from klamm.quotas import QuotaEntity, quota_entity
from klamm.wire.quotas import entity_of, entity_parts
from klamm.wire.v1 import controller_pb2 as pb
from klamm.wire.v1.controller_rpc import AdminStub
from klamm_broker.kafka.api import ApiKey, Versions, api
from klamm_broker.kafka.codec.fields import Fields
from klamm_broker.kafka.cold.forwarding import TIMEOUT_MS, ActiveController
from klamm_broker.kafka.requests import Request
from klamm_server.metadata.image import MetadataImage
from klamm_server.metadata.quotas import FilterComponent, described_quotas
from klamm_server.security.session import refusal


def _refused(error: BrokerError) -> Fields:
    return {"error_code": error.code, "error_message": error.message, "entries": None}


def _not_described(_body: Any) -> Fields:
    return _refused(refusal(ResourceType.CLUSTER))


class QuotaApis:
    """Answers requests about quotas. Each method takes a decoded request and returns the answer's fields."""

    def __init__(self, controller: ActiveController, image: Callable[[], MetadataImage]) -> None:
        self._controller = controller
        self._image = image

    @api(ApiKey.ALTER_CLIENT_QUOTAS, Versions(0, 1, flexible=1), forwarded_to="Admin/AlterClientQuotas", is_whole=True)
    async def alter(self, request: Request, body: Any) -> Fields:
        ask = pb.AlterClientQuotasRequest(
            alterations=[
                pb.ClientQuotaAlteration(
                    entity=entity_parts(quota_entity((part.entity_type, part.entity_name) for part in entry.entity)),
                    operations=[
                        pb.ClientQuotaOperation(key=op.key, value=None if op.remove else op.value) for op in entry.ops
                    ],
                )
                for entry in body.entries
            ],
            validate_only=body.validate_only,
        )
        try:
            answer = await self._controller.change(AdminStub.alter_client_quotas, ask, timeout_ms=TIMEOUT_MS)
            results = list(answer.results)
        except BrokerError as error:
            results = [
                pb.AlteredClientQuotas(entity=entity_parts(entity), error_code=error.code, error_message=error.message)
                for entity in dict.fromkeys(entity_of(alteration.entity) for alteration in ask.alterations)
            ]
        return {
            "entries": [
                {
                    "error_code": result.error_code,
                    "error_message": result.error_message or None,
                    "entity": _entity(entity_of(result.entity)),
                }
                for result in results
            ]
        }

    @api(
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        Versions(0, 1, flexible=1),
        rights_of="Admin/DescribeClientQuotas",
        refused=_not_described,
        is_whole=True,
    )
    async def describe(self, request: Request, body: Any) -> Fields:
        """Describes the quotas of the entities that the filter selects."""
        components = [
            FilterComponent(component.entity_type, component.match_type, component.match)
            for component in body.components
        ]
        try:
            found = described_quotas(self._image(), components, strict=body.strict)
        except BrokerError as error:
            return _refused(error)
        entries = [
            {"entity": _entity(entity), "values": [{"key": key, "value": value} for key, value in values.items()]}
            for entity, values in found
        ]
        return {"error_code": ErrorCode.NONE, "error_message": None, "entries": entries}


def _entity(entity: QuotaEntity) -> list[Fields]:
    return [{"entity_type": kind, "entity_name": name} for kind, name in entity]
