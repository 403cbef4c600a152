from __future__ import annotations

import pytest

from klamm.quotas import QuotaEntity
from klamm_server.security.quotas import mutation_quotas
from klamm_server.security.quotas.mutation_quotas import MutationQuotas
from klamm_server.security.quotas.rate_window import WindowSpan

ALICE: QuotaEntity = (("user", "alice"),)
ANY_CLIENT: QuotaEntity = (("client-id", None),)


def quotas_of(entity: QuotaEntity, rate: float) -> MutationQuotas:
    quotas = MutationQuotas(WindowSpan())
    quotas.apply({entity: {"controller_mutation_rate": rate}})
    return quotas


def test_mutations_over_quota_are_refused_and_refused_ones_do_not_count() -> None:
    quotas = quotas_of(ALICE, 1.0)
    assert quotas.admit("alice", "one", 12, 0) == 0, "eleven at once, and one that is owed"
    assert [quotas.admit("alice", "two", 100, 0) for _ in range(3)] == [1_000] * 3
    assert quotas.admit("bob", "one", 1_000, 0) == 0
    assert quotas.admit("alice", "one", 1, 1_000) == 0


def test_without_a_mutation_quota_no_mutation_is_refused() -> None:
    assert MutationQuotas(WindowSpan()).admit("alice", "one", 10**9, 0) == 0


def test_the_number_of_buckets_is_bounded_and_the_least_recently_used_is_evicted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mutation_quotas, "CLIENTS_MAX", 2)
    quotas = quotas_of(ANY_CLIENT, 1.0)
    for client_id in ("a", "b", "a", "c"):
        quotas.admit("u", client_id, 12, 0)
    assert quotas.admit("u", "a", 1, 0) == 1_000
    assert quotas.admit("u", "b", 1, 0) == 0, "forgotten"
