"""Tests quotas through the requests of Kafka clients."""

from __future__ import annotations

import asyncio
from typing import Any

from klamm.errors import BrokerError, ErrorCode
from klamm.quotas import QuotaEntity
from klamm.wire.quotas import entity_of, entity_parts
from klamm.wire.v1 import controller_pb2 as pb
from klamm.wire.v1.metadata_pb2 import ClientQuotaRecord, MetadataRecord
from klamm_broker.kafka.api import ApiKey
from klamm_broker.kafka.cold.quotas import QuotaApis
from klamm_server.metadata.image import MetadataImage
from klamm_server.metadata.replay import replay
from tests.support.cold_requests import answer_of

ALICE: QuotaEntity = (("user", "alice"),)
DEFAULT: QuotaEntity = (("client-id", None), ("user", None))
IMAGE = replay(
    MetadataImage.empty(),
    [
        MetadataRecord(client_quota=ClientQuotaRecord(entity=entity_parts(entity), key=key, value=value))
        for entity, key, value in (
            (ALICE, "producer_byte_rate", 7),
            (ALICE, "request_percentage", 0.5),
            (DEFAULT, "producer_byte_rate", 8),
        )
    ],
    3,
)


class Controller:
    """A controller that gives a prepared answer and keeps its requests."""

    def __init__(self, answer: pb.AlterClientQuotasResponse | BrokerError) -> None:
        self._answer = answer
        self.asked: list[pb.AlterClientQuotasRequest] = []

    async def change(self, rpc: Any, request: Any, *, timeout_ms: int) -> Any:
        self.asked.append(request)
        if isinstance(self._answer, BrokerError):
            raise self._answer
        return self._answer


def fields_of(entity: QuotaEntity) -> list[dict[str, str | None]]:
    return [{"entity_type": kind, "entity_name": name} for kind, name in entity]


def entity_in(parts: Any) -> QuotaEntity:
    return tuple((part.entity_type, part.entity_name) for part in parts)


def describe(*components: tuple[str, int, str | None]) -> Any:
    asked = [dict(zip(("entity_type", "match_type", "match"), component, strict=True)) for component in components]
    handle = QuotaApis(None, lambda: IMAGE).describe
    fields = {"components": asked, "strict": False}
    return asyncio.run(answer_of(handle, ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, fields))


def alter(controller: Controller) -> list[tuple[QuotaEntity, ErrorCode, str | None]]:
    wanted = {
        "entries": [
            {
                "entity": fields_of(ALICE),
                "ops": [
                    {"key": "producer_byte_rate", "value": 5.0, "remove": False},
                    {"key": "request_percentage", "value": 0.0, "remove": True},
                ],
            },
            {"entity": fields_of(DEFAULT), "ops": []},
        ],
        "validate_only": True,
    }
    answer = asyncio.run(answer_of(QuotaApis(controller, lambda: IMAGE).alter, ApiKey.ALTER_CLIENT_QUOTAS, 1, wanted))
    return [(entity_in(entry.entity), ErrorCode.of(entry.error_code), entry.error_message) for entry in answer.entries]


def test_quotas_are_described_from_the_brokers_metadata() -> None:
    assert {entity_in(entry.entity): {v.key: v.value for v in entry.values} for entry in describe().entries} == {
        ALICE: {"producer_byte_rate": 7, "request_percentage": 0.5},
        DEFAULT: {"producer_byte_rate": 8},
    }
    assert [entity_in(entry.entity) for entry in describe(("client-id", 1, None)).entries] == [DEFAULT]
    assert describe(("ip", 2, None)).entries == ()


def test_an_unknown_entity_type_in_a_quota_filter_is_refused() -> None:
    refused = describe(("group", 2, None))
    assert (ErrorCode.of(refused.error_code), refused.entries) == (ErrorCode.UNSUPPORTED_VERSION, None)


def test_quota_changes_are_sent_to_the_controller_and_get_its_results() -> None:
    refused = pb.AlteredClientQuotas(entity=entity_parts(ALICE), error_code=42, error_message="why")
    controller = Controller(
        pb.AlterClientQuotasResponse(results=[refused, pb.AlteredClientQuotas(entity=entity_parts(DEFAULT))])
    )
    assert alter(controller) == [(ALICE, ErrorCode.INVALID_REQUEST, "why"), (DEFAULT, ErrorCode.NONE, None)]
    (asked,) = controller.asked
    assert asked.validate_only
    assert [entity_of(alteration.entity) for alteration in asked.alterations] == [ALICE, DEFAULT]
    (rate, share) = asked.alterations[0].operations
    assert (rate.key, rate.value) == ("producer_byte_rate", 5.0)
    assert (share.key, share.HasField("value")) == ("request_percentage", False)


def test_without_a_controller_every_quota_entity_gets_the_error() -> None:
    controller = Controller(ErrorCode.REQUEST_TIMED_OUT.exception("nobody answers"))
    assert alter(controller) == [
        (ALICE, ErrorCode.REQUEST_TIMED_OUT, "nobody answers"),
        (DEFAULT, ErrorCode.REQUEST_TIMED_OUT, "nobody answers"),
    ]
