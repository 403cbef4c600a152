from __future__ import annotations

import pytest

from klamm.quotas import QuotaEntity
from klamm.setting import INT_MAX
from klamm_server.security.quotas import connection_rates
from klamm_server.security.quotas.client_quotas import ClientQuotas
from klamm_server.security.quotas.connection_pace import ConnectionPace
from klamm_server.security.quotas.connection_rates import ConnectionRates
from klamm_server.security.quotas.rate_window import WindowSpan

DEFAULT: QuotaEntity = (("ip", None),)
HOME = "192.0.2.1"


def rates_of(**limits: float) -> ConnectionRates:
    """Returns the rates of addresses with these limits. The default limit is called `default`."""
    quotas = ClientQuotas(WindowSpan())
    entities = {DEFAULT if name == "default" else (("ip", name),): limit for name, limit in limits.items()}
    quotas.apply({entity: {"connection_creation_rate": limit} for entity, limit in entities.items()})
    return ConnectionRates(quotas, ConnectionPace(INT_MAX, WindowSpan()))


def test_connection_rates_are_on_if_an_address_has_a_quota() -> None:
    assert rates_of(default=1.0).is_on
    assert not rates_of().is_on


def test_the_delay_grows_with_each_connection_above_the_address_quota() -> None:
    rates = rates_of(default=2.0)
    assert [rates.admit(HOME, 0) for _ in range(20)] == [0] * 20, "ten seconds' worth"
    assert [rates.admit(HOME, 0) for _ in range(3)] == [500, 1000, 1500]
    assert rates.admit("192.0.2.2", 0) == 0, "each address for itself"


def test_an_address_may_be_written_in_many_ways() -> None:
    rates = rates_of(**{"2001:DB8:0::1": 0.1, "192.0.2.1": 0.1})
    for address in ("2001:db8::1", "::ffff:192.0.2.1"):
        assert [rates.admit(address, 0), rates.admit(address, 0)] == [0, 10_000]
    assert rates.admit("2001:db8::2", 0) == 0


def test_the_number_of_connections_delayed_by_a_quota_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_rates, "MUTED_MAX", 2)
    rates = rates_of(default=0.1)
    assert [rates.admit(HOME, 0) for _ in range(3)] == [0, 10_000, 20_000]
    assert [rates.admit(HOME, 0) for _ in range(3)] == [None] * 3
    # The refused connections do not count, and the first waiting one has been accepted.
    assert rates.admit(HOME, 10_000) == 30_000
    assert rates.admit(HOME, 10_000) is None
