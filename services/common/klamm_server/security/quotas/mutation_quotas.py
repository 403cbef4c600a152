"""Limits the rate at which users create and delete partitions, on the active controller (`controller_mutation_rate`,
KIP-599).

Memory is bounded as in `client_quotas`: the bucket that was not used for longest is dropped, and a new bucket is full.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from klamm.quotas import CONTROLLER_MUTATION_RATE
from klamm.setting import INT_MAX
from klamm_server.security.quotas.precedence import Quotas, quota_of
from klamm_server.security.quotas.rate_window import WindowSpan
from klamm_server.security.quotas.token_bucket import TokenBucket

CLIENTS_MAX: Final = 10_000


class MutationQuotas:
    """The token buckets of users and clients. Set the quotas with `apply`, and check each change with `admit`. Times
    are monotonic, in milliseconds."""

    def __init__(self, span: WindowSpan) -> None:
        self._burst_s = span.windows * span.window_ms / 1000
        self._quotas: Quotas = {}
        self._buckets: OrderedDict[tuple[str, str], TokenBucket] = OrderedDict()

    def apply(self, quotas: Quotas) -> None:
        """Sets the quotas that `admit` applies from now on."""
        self._quotas = quotas

    def admit(self, user: str, client_id: str, partitions: int, now_ms: int) -> int:
        """Counts a change of `partitions` partitions and returns 0 if the quota admits it. Otherwise returns the time
        in milliseconds that the client must wait."""
        quota = quota_of(self._quotas, CONTROLLER_MUTATION_RATE, user, client_id) if self._quotas else None
        if quota is None:
            return 0
        bucket = self._bucket(quota.sharers, now_ms)
        throttle_ms = min(INT_MAX, bucket.throttle_ms(quota.limit, self._burst_s, now_ms))
        if not throttle_ms:
            bucket.take(partitions, quota.limit, self._burst_s, now_ms)
        return throttle_ms

    def _bucket(self, sharers: tuple[str, str], now_ms: int) -> TokenBucket:
        bucket = self._buckets.get(sharers)
        if bucket is None:
            if len(self._buckets) >= CLIENTS_MAX:
                self._buckets.popitem(last=False)
            bucket = self._buckets[sharers] = TokenBucket(now_ms)
        else:
            self._buckets.move_to_end(sharers)
        return bucket
