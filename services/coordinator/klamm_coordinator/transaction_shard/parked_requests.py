"""Requests that wait for a change under way.

Kafka answers such requests with CONCURRENT_TRANSACTIONS at once, so that clients poll. Klamm answers so only after
`wait_max_ms`.

Invariant: every request that waits has a timer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from klamm_coordinator.ledger.messages import LedgerRequest
from klamm_coordinator.runtime.accounts import Accounts
from klamm_coordinator.runtime.timers import Timers
from klamm_coordinator.transaction.messages import IdRequest
from klamm_coordinator.transaction_shard.messages import Reply
from klamm_coordinator.transaction_shard.sizes import request_bytes, request_key
from klamm_coordinator.transaction_shard.transaction_context import TransactionContext


@dataclass(frozen=True, slots=True)
class WaitTimer:
    """Due when a request has waited for `wait_max_ms`."""

    reply_id: int


class ParkedRequests:
    """The requests of one shard that wait, by reply id."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts
        self._requests: dict[int, IdRequest | LedgerRequest] = {}

    def __getitem__(self, reply_id: int) -> IdRequest | LedgerRequest:
        return self._requests[reply_id]

    def park(self, request: IdRequest | LedgerRequest, context: TransactionContext) -> None:
        """Parks a request. If it was parked before, its timer continues."""
        if request.reply_id not in self._requests:
            self._requests[request.reply_id] = request
            self._accounts.add(request_key(request), request_bytes(request))
            context.schedule(WaitTimer(request.reply_id), context.settings.wait_max_ms)

    def unpark(self, reply_id: int, context: TransactionContext) -> None:
        """Removes the request and cancels its timer, if it is parked."""
        request = self._requests.pop(reply_id, None)
        if request is not None:
            self._accounts.add(request_key(request), -request_bytes(request))
            context.timers.cancel(WaitTimer(reply_id))

    def answer(self, reply_id: int, reply: Reply, context: TransactionContext) -> None:
        """Answers a request, whether it has been waiting or not."""
        self.unpark(reply_id, context)
        context.reply(reply_id, reply)

    def sizes(self) -> Counter[str]:
        """Returns the bytes of the parked requests, counted one by one, for tests."""
        sizes: Counter[str] = Counter()
        for request in self._requests.values():
            sizes[request_key(request)] += request_bytes(request)
        return sizes

    def check_invariants(self, of_ids: Iterable[int], timers: Timers[object]) -> set[int]:
        """Asserts that all requests that wait for an id in `of_ids`, or for a ledger, are parked and have a timer.
        Returns the reply ids of the requests that wait for ledgers."""
        of_ledgers = {reply_id for reply_id, request in self._requests.items() if isinstance(request, LedgerRequest)}
        assert {*of_ids} | of_ledgers == self._requests.keys(), (of_ids, self._requests)
        for reply_id in self._requests:
            assert WaitTimer(reply_id) in timers, reply_id
        return of_ledgers
