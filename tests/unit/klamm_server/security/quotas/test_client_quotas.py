from __future__ import annotations

from klamm.quotas import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, QuotaEntity
from klamm_server.security.quotas import client_quotas
from klamm_server.security.quotas.client_quotas import IDLE_MS, ClientQuotas
from klamm_server.security.quotas.rate_window import WindowSpan

ALICE: QuotaEntity = (("user", "alice"),)
ANY_USER: QuotaEntity = (("user", None),)
ANY_CLIENT: QuotaEntity = (("client-id", None),)


def new(**limits: float) -> ClientQuotas:
    quotas = ClientQuotas(WindowSpan())
    quotas.apply({ALICE: limits})
    return quotas


def test_client_quotas_are_on_while_a_user_or_client_has_a_quota() -> None:
    quotas = ClientQuotas(WindowSpan())
    assert not quotas.is_on
    quotas.apply({(("ip", None),): {"connection_creation_rate": 1.0}})
    assert not quotas.is_on
    quotas.apply({ALICE: {PRODUCER_BYTE_RATE: 1.0}})
    assert quotas.is_on
    quotas.apply({})
    assert not quotas.is_on


def test_a_client_without_a_quota_is_not_counted() -> None:
    quotas = new(producer_byte_rate=1.0)
    assert quotas.charge(PRODUCER_BYTE_RATE, "bob", "c", 10**9, 0) == 0
    assert quotas.charge(CONSUMER_BYTE_RATE, "alice", "c", 10**9, 0) == 0
    assert quotas.burst(PRODUCER_BYTE_RATE, "bob", "c") is None
    assert len(quotas) == 0


def test_all_clients_of_a_user_share_its_quota() -> None:
    quotas = new(producer_byte_rate=100.0)
    assert quotas.burst(PRODUCER_BYTE_RATE, "alice", "c") == 1000
    assert quotas.charge(PRODUCER_BYTE_RATE, "alice", "one", 1000, 0) == 0
    assert quotas.charge(PRODUCER_BYTE_RATE, "alice", "two", 100, 0) == 1000
    assert quotas.throttle_ms(PRODUCER_BYTE_RATE, "alice", "three", 0) == 1000
    assert len(quotas) == 1


def test_a_default_quota_applies_to_each_user_separately() -> None:
    quotas = ClientQuotas(WindowSpan())
    quotas.apply({ANY_USER: {PRODUCER_BYTE_RATE: 100.0}})
    assert quotas.charge(PRODUCER_BYTE_RATE, "alice", "c", 2000, 0) > 0
    assert quotas.charge(PRODUCER_BYTE_RATE, "bob", "c", 1000, 0) == 0


def test_a_changed_quota_applies_at_once_to_recorded_bytes() -> None:
    quotas = new(producer_byte_rate=1000.0)
    assert quotas.charge(PRODUCER_BYTE_RATE, "alice", "c", 1000, 0) == 0
    quotas.apply({ALICE: {PRODUCER_BYTE_RATE: 50.0}})
    assert quotas.throttle_ms(PRODUCER_BYTE_RATE, "alice", "c", 0) == 10_000


def test_a_throttle_time_fits_into_32_bits() -> None:
    assert new(producer_byte_rate=1e-9).charge(PRODUCER_BYTE_RATE, "alice", "c", 10**9, 0) == 2**31 - 1


def test_the_number_of_rates_is_bounded_and_the_least_recently_used_is_evicted(monkeypatch) -> None:
    monkeypatch.setattr(client_quotas, "CLIENTS_MAX", 3)
    quotas = ClientQuotas(WindowSpan())
    quotas.apply({ANY_CLIENT: {PRODUCER_BYTE_RATE: 100.0}})
    for client_id in ("a", "b", "c", "a", "d"):
        quotas.charge(PRODUCER_BYTE_RATE, "u", client_id, 2000, 0)
    assert len(quotas) == 3
    assert quotas.throttle_ms(PRODUCER_BYTE_RATE, "u", "a", 0) > 0
    assert quotas.throttle_ms(PRODUCER_BYTE_RATE, "u", "b", 0) == 0, "forgotten"


def test_an_idle_client_is_forgotten_after_an_hour() -> None:
    quotas = ClientQuotas(WindowSpan())
    quotas.apply({ANY_CLIENT: {PRODUCER_BYTE_RATE: 100.0}})
    for client_id in ("a", "b"):
        quotas.charge(PRODUCER_BYTE_RATE, "u", client_id, 1, 0)
    quotas.charge(PRODUCER_BYTE_RATE, "u", "b", 1, IDLE_MS // 2)
    quotas.charge(PRODUCER_BYTE_RATE, "u", "c", 1, IDLE_MS)
    assert len(quotas) == 2


def test_a_long_client_id_is_counted_but_not_kept() -> None:
    quotas = ClientQuotas(WindowSpan())
    quotas.apply({ANY_CLIENT: {PRODUCER_BYTE_RATE: 100.0}})
    long, other = "c" * 30_000, "c" * 29_999 + "d"
    assert quotas.charge(PRODUCER_BYTE_RATE, "alice", long, 2000, 0) > 0
    assert quotas.throttle_ms(PRODUCER_BYTE_RATE, "alice", long, 0) > 0
    assert quotas.throttle_ms(PRODUCER_BYTE_RATE, "alice", other, 0) == 0
    kept = [*quotas._found, *quotas._rates]
    assert len(kept) == len(quotas) == 2
    assert max(len(text) for sharers in kept for text in sharers) < 200


def test_a_quota_of_a_long_client_id_applies_to_it() -> None:
    quotas = ClientQuotas(WindowSpan())
    long = "c" * 30_000
    quotas.apply({(("client-id", long),): {PRODUCER_BYTE_RATE: 100.0}})
    assert quotas.charge(PRODUCER_BYTE_RATE, "alice", long, 2000, 0) > 0
    assert quotas.charge(PRODUCER_BYTE_RATE, "alice", long + "c", 2000, 0) == 0
