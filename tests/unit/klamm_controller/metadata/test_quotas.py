from __future__ import annotations

import math

import pytest

from klamm.errors import ErrorCode
from klamm.quotas import quota_entity
from klamm.wire.quotas import entity_of, entity_parts
from klamm.wire.v1.controller_pb2 import (
    AlterClientQuotasRequest,
    ClientQuotaAlteration,
    ClientQuotaOperation,
    DescribeClientQuotasRequest,
    QuotaFilterComponent,
)
from klamm.wire.v1.metadata_pb2 import QuotaEntityPart
from klamm_controller.metadata.quotas import describe_client_quotas, handle_alter_client_quotas

ALICE = (("user", "alice"),)
ANY_CLIENT_OF_ALICE = (("client-id", None), ("user", "alice"))
ANYBODY = (("user", None),)
ADDRESS = (("ip", "192.0.2.1"),)


def change(entity, **values):
    return ClientQuotaAlteration(
        entity=[QuotaEntityPart(type=kind, name=name) for kind, name in entity],
        operations=[ClientQuotaOperation(key=key, value=value) for key, value in values.items()],
    )


def alter(cluster, *alterations, validate_only=False):
    """Alters quotas. Returns the error codes by entity."""
    request = AlterClientQuotasRequest(alterations=alterations, validate_only=validate_only)
    results = cluster.apply(handle_alter_client_quotas(request, cluster.image)).results
    return {entity_of(result.entity): ErrorCode.of(result.error_code) for result in results}


def test_quotas_are_set_changed_and_removed(cluster):
    assert alter(cluster, change(ALICE, producer_byte_rate=1000, request_percentage=12.5)) == {ALICE: ErrorCode.NONE}
    assert cluster.image.client_quotas == {ALICE: {"producer_byte_rate": 1000, "request_percentage": 12.5}}
    alter(cluster, change(ALICE, producer_byte_rate=2000), change(ANYBODY, controller_mutation_rate=0.5))
    alter(cluster, change(ALICE, request_percentage=None))
    assert cluster.image.client_quotas == {
        ALICE: {"producer_byte_rate": 2000},
        ANYBODY: {"controller_mutation_rate": 0.5},
    }
    alter(cluster, change(ALICE, producer_byte_rate=None), change(ANYBODY, controller_mutation_rate=None))
    assert cluster.image.client_quotas == {}


@pytest.mark.parametrize(
    ("entity", "key"),
    [
        (ALICE, "producer_byte_rate"),
        (ANY_CLIENT_OF_ALICE, "consumer_byte_rate"),
        ((("client-id", "app"),), "request_percentage"),
        ((("client-id", None),), "controller_mutation_rate"),
        (ADDRESS, "connection_creation_rate"),
        ((("ip", None),), "connection_creation_rate"),
        ((("ip", "2001:db8::1"),), "connection_creation_rate"),
    ],
)
def test_each_entity_type_accepts_its_quota_keys(cluster, entity, key):
    assert alter(cluster, change(entity, **{key: 7})) == {entity: ErrorCode.NONE}
    assert cluster.image.client_quotas == {entity: {key: 7.0}}


@pytest.mark.parametrize(
    "alteration",
    [
        change((), producer_byte_rate=1),
        change((("group", "g"),), producer_byte_rate=1),
        change((("user", ""),), producer_byte_rate=1),
        change((*ADDRESS, *ALICE), connection_creation_rate=1),
        change((("ip", "localhost"),), connection_creation_rate=1),
        change(ADDRESS, producer_byte_rate=1),
        change(ALICE, connection_creation_rate=1),
        change(ALICE, unheard_of=1),
        change(ALICE, producer_byte_rate=0),
        change(ALICE, request_percentage=-1),
        change(ALICE, request_percentage=math.nan),
        change(ALICE, request_percentage=math.inf),
        change(ALICE, producer_byte_rate=1.5),
        change(ALICE, consumer_byte_rate=1e19),
        change(ADDRESS, connection_creation_rate=2.0**31),
        change(ADDRESS, connection_creation_rate=0.5),
        # The valid quota beside an invalid one is not applied either.
        change(ALICE, producer_byte_rate=1, unheard_of=1),
    ],
)
def test_an_invalid_quota_is_refused_and_the_others_are_set(cluster, alteration):
    bystander = change(ANYBODY, producer_byte_rate=5)
    entity = entity_of(alteration.entity)
    assert alter(cluster, alteration, bystander) == {entity: ErrorCode.INVALID_REQUEST, ANYBODY: ErrorCode.NONE}
    assert cluster.image.client_quotas == {ANYBODY: {"producer_byte_rate": 5}}


def test_a_key_or_an_entity_that_is_named_twice_is_refused(cluster):
    twice = ClientQuotaOperation(key="producer_byte_rate", value=1)
    alteration = ClientQuotaAlteration(entity=entity_parts(ALICE), operations=[twice, twice])
    assert alter(cluster, alteration) == {ALICE: ErrorCode.INVALID_REQUEST}
    rate = change(ALICE, producer_byte_rate=1)
    assert alter(cluster, rate, rate) == {ALICE: ErrorCode.INVALID_REQUEST}
    assert cluster.image.client_quotas == {}


def test_an_unchanged_quota_makes_no_record(cluster):
    alter(cluster, change(ALICE, producer_byte_rate=1))
    request = AlterClientQuotasRequest(
        alterations=[change(ALICE, producer_byte_rate=1, consumer_byte_rate=None, unheard_of=None)]
    )
    decision = handle_alter_client_quotas(request, cluster.image)
    assert decision.records == ()
    assert [result.error_code for result in decision.reply.results] == [0]


def test_validate_only_checks_quotas_and_changes_nothing(cluster):
    assert alter(cluster, change(ALICE, producer_byte_rate=1), validate_only=True) == {ALICE: ErrorCode.NONE}
    assert alter(cluster, change(ALICE, x=1), validate_only=True) == {ALICE: ErrorCode.INVALID_REQUEST}
    assert cluster.image.client_quotas == {}


def test_quotas_are_described_by_filter_components(cluster):
    for entity in (ALICE, ANYBODY, ANY_CLIENT_OF_ALICE):
        alter(cluster, change(entity, producer_byte_rate=1000))

    def described(*components, strict=False):
        parts = [QuotaFilterComponent(type=kind, match_type=way, match=name) for kind, way, name in components]
        answer = describe_client_quotas(DescribeClientQuotasRequest(components=parts, strict=strict), cluster.image)
        assert all(entry.values == {"producer_byte_rate": 1000} for entry in answer.entries)
        return ErrorCode.of(answer.error_code) or {entity_of(entry.entity) for entry in answer.entries}

    assert described() == {ALICE, ANYBODY, ANY_CLIENT_OF_ALICE}
    assert described(strict=True) == set()
    assert described(("user", 0, "alice")) == {ALICE, ANY_CLIENT_OF_ALICE}
    assert described(("user", 0, "alice"), strict=True) == {ALICE}
    assert described(("group", 2, None)) is ErrorCode.UNSUPPORTED_VERSION
    assert described(("user", 0, None)) is ErrorCode.INVALID_REQUEST


def test_the_last_of_two_entity_parts_of_one_type_is_used():
    assert quota_entity([("user", "a"), ("client-id", "c"), ("user", None)]) == (("client-id", "c"), ("user", None))
