"""The recent rates of the clients of one server, and the quotas that limit them.

Memory is bounded: rates of clients that have gone are forgotten after an hour, and the one that was used longest ago
when there are too many. A forgotten client starts again, with the burst of a new one. A client chooses its client id
freely, so quotas that are to protect somebody are by user or address. A long client id is not kept."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from klamm.quotas import IP, QuotaEntity
from klamm.setting import INT_MAX
from klamm_server.security.acls.hosts import canonical_address
from klamm_server.security.quotas.precedence import KEPT_CLIENT_ID_MAX, Quota, Quotas, limit_of_address, quota_of
from klamm_server.security.quotas.rate_window import RateWindow, WindowSpan

CLIENTS_MAX: Final = 10_000
"""The maximum number of rates and of cached quotas."""
IDLE_MS: Final = 3_600_000

_Sharers = tuple[str, str, str]
"""Key, user and client id."""


class ClientQuotas:
    """The quotas of one server. Set them with `apply`, and count usage with `charge`. Times are monotonic
    milliseconds.
    """

    def __init__(self, span: WindowSpan) -> None:
        self.span = span
        self.is_on = False
        """True if a quota of users or client ids is set, with any key."""
        self.bounds_addresses = False
        """True if a quota of addresses is set."""
        self._seen: object = None
        self._quotas: Quotas = {}
        self._found: dict[_Sharers, Quota | None] = {}
        self._rates: OrderedDict[_Sharers, RateWindow] = OrderedDict()

    def __len__(self) -> int:
        """Returns the number of rates."""
        return len(self._rates)

    def apply(self, quotas: Quotas) -> None:
        """Uses these quotas from now on. The rates measured before count against them."""
        if quotas is self._seen:
            return
        self._seen = quotas
        self._quotas = {_canonical(entity): values for entity, values in quotas.items()}
        self._found.clear()
        self.bounds_addresses = any(kind == IP for entity in quotas for kind, _ in entity)
        self.is_on = any(kind != IP for entity in quotas for kind, _ in entity)

    def charge(self, key: str, user: str, client_id: str, amount: float, now_ms: int) -> int:
        """Counts `amount` against the quota. Returns how long the client has to pause for it, in milliseconds."""
        quota = self._quota(key, user, client_id)
        if quota is None:
            return 0
        rate = self._rate(key, quota, now_ms)
        rate.record(amount, quota.limit, now_ms)
        return min(INT_MAX, rate.throttle_ms(quota.limit, now_ms))

    def charge_address(self, key: str, address: str, amount: float, now_ms: int) -> int:
        """Counts `amount` against the quota of an address, as `charge` does. Each address has a rate of its own."""
        limit = limit_of_address(self._quotas, key, canonical_address(address))
        if limit is None:
            return 0
        rate = self._rate(key, Quota(limit, (address, "")), now_ms)
        rate.record(amount, limit, now_ms)
        return min(INT_MAX, rate.throttle_ms(limit, now_ms))

    def throttle_ms(self, key: str, user: str, client_id: str, now_ms: int) -> int:
        """Returns how long the client must pause for its recent usage, in milliseconds."""
        quota = self._quota(key, user, client_id)
        if quota is None:
            return 0
        return min(INT_MAX, self._rate(key, quota, now_ms).throttle_ms(quota.limit, now_ms))

    def burst(self, key: str, user: str, client_id: str) -> float | None:
        """Returns the amount that a client may use at once without a pause, or None without a quota."""
        quota = self._quota(key, user, client_id)
        return None if quota is None else quota.limit * self.span.burst_s

    def _quota(self, key: str, user: str, client_id: str) -> Quota | None:
        wanted = key, user, client_id
        try:
            return self._found[wanted]
        except KeyError:
            found = quota_of(self._quotas, key, user, client_id)
            if len(client_id) <= KEPT_CLIENT_ID_MAX:
                if len(self._found) >= CLIENTS_MAX:
                    self._found.clear()
                self._found[wanted] = found
            return found

    def _rate(self, key: str, quota: Quota, now_ms: int) -> RateWindow:
        rates, sharers = self._rates, (key, *quota.sharers)
        rate = rates.get(sharers)
        if rate is None:
            self._forget(now_ms)
            rate = rates[sharers] = RateWindow(self.span)
        else:
            rates.move_to_end(sharers)
        return rate

    def _forget(self, now_ms: int) -> None:
        """Makes room for one more rate."""
        rates = self._rates
        while rates:
            oldest = next(iter(rates.values()))
            if len(rates) < CLIENTS_MAX and now_ms - oldest.last_ms < IDLE_MS:
                return
            rates.popitem(last=False)


def _canonical(entity: QuotaEntity) -> QuotaEntity:
    """Returns the entity with its address in canonical form, because an address can be written in many ways."""
    return tuple((kind, canonical_address(name) if kind == IP and name else name) for kind, name in entity)
