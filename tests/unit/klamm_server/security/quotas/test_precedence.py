from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from klamm.quotas import QuotaEntity, quota_entity
from klamm_server.security.quotas.precedence import limit_of_address, quota_of

KEY, OTHER = "producer_byte_rate", "consumer_byte_rate"
NAMES = [..., None, "a", "b"]
"""Names of a user and of a client id; ...: the entity has no such part."""


def entity(user: object, client_id: object) -> QuotaEntity:
    parts = {"user": user, "client-id": client_id}
    return quota_entity((kind, name) for kind, name in parts.items() if name is not ...)


ENTITIES = [entity(*names) for names in product(NAMES, NAMES) if names != (..., ...)]


def rank(candidate: QuotaEntity) -> tuple[int, int, int]:
    """Returns the rank of a quota entity by KIP-55, as one rule.

    A named user ranks before the default user, and that before none. For the same user, a named client id ranks before
    the default client id, and that before none. An entity without a user has only a client id.
    """
    names = dict(candidate)
    user = 2 if names.get("user") else 1 if "user" in names else 0
    client = 2 if names.get("client-id") else 1 if "client-id" in names else 0
    return (user, client, 0)


@given(
    st.dictionaries(
        st.sampled_from(ENTITIES), st.dictionaries(st.sampled_from([KEY, OTHER]), st.floats(1, 9)), max_size=15
    ),
    st.sampled_from("abc"),
    st.sampled_from("abc"),
)
def test_the_most_specific_quota_of_a_key_applies(
    quotas: dict[QuotaEntity, dict[str, float]], user: str, client_id: str
) -> None:
    client = {"user": user, "client-id": client_id}
    fitting = [
        candidate
        for candidate, values in quotas.items()
        if KEY in values and all(name in (None, client[kind]) for kind, name in candidate)
    ]
    found = quota_of(quotas, KEY, user, client_id)
    if not fitting:
        assert found is None
        return
    best = max(fitting, key=rank)
    assert found is not None
    assert found.limit == quotas[best][KEY]
    kinds = dict(best)
    assert found.sharers == (user if "user" in kinds else "", client_id if "client-id" in kinds else "")


def test_an_address_has_its_own_quota_or_the_default() -> None:
    key = "connection_creation_rate"
    quotas = {(("ip", "10.0.0.1"),): {key: 5.0}, (("ip", None),): {key: 7.0}}
    assert limit_of_address(quotas, key, "10.0.0.1") == 5
    assert limit_of_address(quotas, key, "10.0.0.2") == 7
    assert limit_of_address({}, key, "10.0.0.2") is None
