from __future__ import annotations

import pytest

from klamm.errors import BrokerError, ErrorCode
from klamm.quotas import QuotaEntity
from klamm.wire.quotas import entity_parts
from klamm.wire.v1.metadata_pb2 import ClientQuotaRecord, MetadataRecord
from klamm_server.metadata.image import MetadataImage
from klamm_server.metadata.quotas import FilterComponent, described_quotas
from klamm_server.metadata.replay import replay

ENTITIES: list[QuotaEntity] = [
    (("user", "a"),),
    (("user", None),),
    (("client-id", "c"), ("user", "a")),
    (("client-id", "c"), ("user", None)),
    (("client-id", None),),
    (("ip", "::1"),),
]
IMAGE = replay(
    MetadataImage.empty(),
    [
        MetadataRecord(client_quota=ClientQuotaRecord(entity=entity_parts(entity), key="k", value=1))
        for entity in ENTITIES
    ],
    len(ENTITIES),
)
EXACT, DEFAULT, ANY = range(3)


def described(*components: tuple[str, int, str | None], strict: bool = False) -> list[int]:
    """Returns the numbers of the entities that match."""
    wanted = [FilterComponent(*component) for component in components]
    return [ENTITIES.index(entity) for entity, _ in described_quotas(IMAGE, wanted, strict=strict)]


def test_a_quota_entity_must_match_every_component_of_the_filter() -> None:
    assert described() == [0, 1, 2, 3, 4, 5]
    assert described(("user", EXACT, "a")) == [0, 2]
    assert described(("user", DEFAULT, None)) == [1, 3]
    assert described(("user", ANY, None)) == [0, 1, 2, 3]
    assert described(("user", ANY, None), ("client-id", EXACT, "c")) == [2, 3]
    assert described(("client-id", DEFAULT, None)) == [4]
    assert described(("ip", EXACT, "10.0.0.1")) == []


def test_a_strict_quota_filter_excludes_entities_with_other_types() -> None:
    assert described(("user", ANY, None), strict=True) == [0, 1]
    assert described(("user", ANY, None), ("client-id", ANY, None), strict=True) == [2, 3]
    assert described(strict=True) == []


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("user", 0, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 1, "a")], ErrorCode.INVALID_REQUEST),
        ([("user", 2, "a")], ErrorCode.INVALID_REQUEST),
        ([("user", 3, None)], ErrorCode.INVALID_REQUEST),
        ([("", 2, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 2, None), ("user", 1, None)], ErrorCode.INVALID_REQUEST),
        ([("ip", 2, None), ("user", 2, None)], ErrorCode.INVALID_REQUEST),
        ([("group", 2, None)], ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_an_invalid_quota_filter_is_refused(components: list[tuple[str, int, str | None]], code: ErrorCode) -> None:
    with pytest.raises(BrokerError) as raised:
        described(*components)
    assert raised.value.code is code
