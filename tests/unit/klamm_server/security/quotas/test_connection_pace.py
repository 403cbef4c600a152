"""Tests the rate of connections from all addresses together, at one listener and at all of them."""

from __future__ import annotations

from klamm.quotas import CONNECTION_CREATION_RATE
from klamm.setting import INT_MAX
from klamm_server.security.quotas.client_quotas import ClientQuotas
from klamm_server.security.quotas.connection_pace import ConnectionPace
from klamm_server.security.quotas.connection_rates import MUTED_MAX, ConnectionRates
from klamm_server.security.quotas.rate_window import WindowSpan

SPAN = WindowSpan()


def test_without_a_connection_rate_no_connection_is_delayed() -> None:
    pace = ConnectionPace(INT_MAX, SPAN, ConnectionPace(INT_MAX, SPAN))
    assert not pace.is_on
    assert {pace.note(0) for _ in range(1_000)} == {0}


def test_the_delay_grows_with_each_connection_above_the_rate() -> None:
    pace = ConnectionPace(2, SPAN)
    assert pace.is_on
    assert [pace.note(0) for _ in range(22)] == [0] * 20 + [500, 1000], "ten seconds' worth, then two a second"


def test_the_lower_of_a_listeners_and_the_brokers_connection_rate_applies() -> None:
    whole = ConnectionPace(1, SPAN)
    slow, fast = ConnectionPace(INT_MAX, SPAN, whole), ConnectionPace(3, SPAN, whole)
    assert slow.is_on
    assert [slow.note(0) for _ in range(5)] + [fast.note(0) for _ in range(5)] == [0] * 10
    assert (slow.note(0), fast.note(0)) == (1_000, 2_000)
    whole.rate_max = INT_MAX
    assert (slow.is_on, fast.is_on) == (False, True)
    assert fast.note(0) == 0


def test_a_refused_connection_does_not_count_toward_the_rate() -> None:
    whole = ConnectionPace(1, SPAN)
    pace = ConnectionPace(1, SPAN, whole)
    assert [pace.note(0) for _ in range(11)][-1] == 1_000
    pace.take_back(0)
    assert pace.note(0) == 1_000
    assert whole.note(0) == 2_000


def test_the_longer_delay_of_connection_rate_and_address_quota_applies() -> None:
    quotas = ClientQuotas(SPAN)
    rates = ConnectionRates(quotas, ConnectionPace(100, SPAN))
    assert rates.is_on
    assert {rates.admit(f"192.0.2.{number % 250}", 0) for number in range(1_000)} == {0}
    assert rates.admit("192.0.2.1", 0) == 10
    quotas.apply({(("ip", "192.0.2.1"),): {CONNECTION_CREATION_RATE: 0.05}})
    assert (rates.admit("192.0.2.1", 0), rates.admit("192.0.2.2", 0)) == (10_000, 30)


def test_the_number_of_connections_delayed_by_the_rate_is_bounded() -> None:
    rates = ConnectionRates(ClientQuotas(SPAN), ConnectionPace(1, SPAN))
    admitted = [rates.admit("192.0.2.1", 0) for _ in range(10 + MUTED_MAX + 5)]
    assert admitted[9:11] == [0, 1_000]
    assert admitted[-6:] == [1_000 * MUTED_MAX] + [None] * 5
