"""The ledgers of a shard: their values, their open transactions, and the changes under way.

A request that decides about the transactions of a ledger waits until none of them is changing. While the request waits
or is being appended, none of them begins to change. So the decision ends the transactions as it saw them.

Invariants: the open transactions of a ledger are those of its parts in state Ongoing; an activity without a change or a
request is not kept.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from klamm.ledger_ids import LedgerId, ledger_of
from klamm_coordinator.ledger.ledger import BatchLedger
from klamm_coordinator.ledger.messages import LedgerRequest
from klamm_coordinator.ledger.records import LedgerRecord


@dataclass(slots=True)
class _Activity:
    """The changes under way of one ledger."""

    changing_count: int = 0
    """The number of the ledger's transactions for which a record is being appended that opens, changes or ends them."""
    is_deciding: bool = False
    """True while a record of the ledger is being appended."""
    waiting: deque[LedgerRequest] = field(default_factory=deque)
    held: set[str] = field(default_factory=set)
    """The transactional ids whose requests wait for the ledger."""

    @property
    def is_claimed(self) -> bool:
        return self.is_deciding or bool(self.waiting)

    @property
    def is_over(self) -> bool:
        return not (self.changing_count or self.is_deciding or self.waiting or self.held)


class Ledgers:
    """All batch ledgers of a shard. `TransactionRules` owns this object."""

    def __init__(self) -> None:
        self.values: dict[LedgerId, BatchLedger] = {}
        """The durable value of each ledger."""
        self._open: dict[LedgerId, set[str]] = {}
        self._activities: dict[LedgerId, _Activity] = {}

    def replay(self, record: LedgerRecord) -> None:
        """Applies one acknowledged record. Only this method changes `values`."""
        if record.value is None:
            self.values.pop(record.ledger, None)
        else:
            self.values[record.ledger] = record.value

    def note_open(self, transactional_id: str, *, is_open: bool) -> None:
        """Notes that a transaction is open, or not open, after a record of it was acknowledged."""
        ledger = ledger_of(transactional_id)
        if ledger is None:
            return
        if is_open:
            self._open.setdefault(ledger, set()).add(transactional_id)
        elif ledger in self._open:
            self._open[ledger].discard(transactional_id)
            if not self._open[ledger]:
                del self._open[ledger]

    def open_parts(self, ledger: LedgerId) -> frozenset[str]:
        """Returns the transactional ids of the ledger's open transactions."""
        return frozenset(self._open.get(ledger, ()))

    def of_part(self, transactional_id: str) -> BatchLedger | None:
        """Returns the ledger of this transactional id, or None if there is none."""
        ledger = ledger_of(transactional_id)
        return None if ledger is None else self.values.get(ledger)

    # Changes of transactions

    def begin_change(self, transactional_id: str) -> None:
        """Notes that a record of the transaction is being appended."""
        if (ledger := ledger_of(transactional_id)) is not None:
            self._activity(ledger).changing_count += 1

    def end_change(self, transactional_id: str) -> LedgerId | None:
        """Notes that the append has ended. Returns the transaction's ledger if the ledger's requests may continue, else
        None."""
        ledger = ledger_of(transactional_id)
        if ledger is None:
            return None
        activity = self._activities[ledger]
        activity.changing_count -= 1
        self._forget_if_over(ledger)
        return ledger if self.is_quiet(ledger) else None

    def holds(self, transactional_id: str) -> bool:
        """Returns True if a change of the transaction has to wait for its ledger."""
        ledger = ledger_of(transactional_id)
        activity = None if ledger is None else self._activities.get(ledger)
        return activity is not None and activity.is_claimed

    def hold(self, transactional_id: str) -> None:
        """Notes that requests of the transactional id wait for its ledger, so that `release` returns the id."""
        ledger = ledger_of(transactional_id)
        assert ledger is not None, transactional_id
        self._activities[ledger].held.add(transactional_id)

    # Decisions

    def is_quiet(self, ledger: LedgerId) -> bool:
        """Returns True if no record of the ledger or of its transactions is being appended."""
        activity = self._activities.get(ledger)
        return activity is None or not (activity.changing_count or activity.is_deciding)

    def is_claimed(self, ledger: LedgerId) -> bool:
        """Returns True if a request about the ledger waits or is being appended."""
        activity = self._activities.get(ledger)
        return activity is not None and activity.is_claimed

    def begin_decision(self, ledger: LedgerId) -> None:
        """Notes that a record of the ledger is being appended."""
        assert self.is_quiet(ledger), ledger
        self._activity(ledger).is_deciding = True

    def end_decision(self, ledger: LedgerId) -> None:
        """Notes that the append of the ledger's record has ended, whether it succeeded or not."""
        self._activities[ledger].is_deciding = False

    def waiting(self, ledger: LedgerId) -> deque[LedgerRequest]:
        """Returns the requests that wait for the ledger, in order. The caller may change the queue."""
        return self._activity(ledger).waiting

    def release(self, ledger: LedgerId) -> list[str]:
        """Returns the transactional ids that waited for the ledger and may change again, and forgets them."""
        activity = self._activities.get(ledger)
        if activity is None or activity.is_claimed:
            return []
        held, activity.held = sorted(activity.held), set()
        self._forget_if_over(ledger)
        return held

    def check_invariants(self, ongoing: set[str], waiting_reply_ids: set[int]) -> None:
        """Asserts the module's invariants. `ongoing` are the ids of open transactions, `waiting_reply_ids` the parked
        requests."""
        parts = {transactional_id for of_ledger in self._open.values() for transactional_id in of_ledger}
        assert parts == {transactional_id for transactional_id in ongoing if ledger_of(transactional_id) is not None}, (
            parts,
            ongoing,
        )
        assert all(self._open.values()), self._open
        for ledger, activity in self._activities.items():
            assert not activity.is_over, ledger
            assert activity.changing_count >= 0, (ledger, activity)
            assert not (activity.is_deciding and activity.changing_count), (ledger, activity)
            assert not activity.waiting or not self.is_quiet(ledger), (ledger, activity)
            assert {request.reply_id for request in activity.waiting} <= waiting_reply_ids, (ledger, activity)

    def _activity(self, ledger: LedgerId) -> _Activity:
        return self._activities.setdefault(ledger, _Activity())

    def _forget_if_over(self, ledger: LedgerId) -> None:
        if self._activities[ledger].is_over:
            del self._activities[ledger]
