"""The transactional ids of a shard: the durable state of each, and its change under way.

Only records that the log has acknowledged change the durable state (`values`). At most one change of a transactional id
is under way. Requests that arrive during a change wait, in order.

Invariants: the open transactions are those of state Ongoing; an activity without a change or a request is not kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from klamm_coordinator.transaction.messages import IdRequest
from klamm_coordinator.transaction.metadata import TransactionMetadata
from klamm_coordinator.transaction.records import TransactionRecord
from klamm_coordinator.transaction.states import TxnState


@dataclass(slots=True)
class _Activity:
    """The change under way of one transactional id, and the requests that wait."""

    is_changing: bool = False
    """True while a record of the transactional id is being appended."""
    waiting: deque[IdRequest] = field(default_factory=deque)


class TransactionalIds:
    """All transactional ids of a shard. `TransactionRules` owns this object."""

    def __init__(self) -> None:
        self.values: dict[str, TransactionMetadata] = {}
        """The durable states, by transactional id."""
        self.open: set[str] = set()
        """The ids that have an open transaction."""
        self._activities: dict[str, _Activity] = {}

    # Reading

    @property
    def prepared_count(self) -> int:
        """The number of open transactions that wait for their ledger's decision. Safe to read from another thread."""
        values = [self.values.get(transactional_id) for transactional_id in tuple(self.open)]
        return sum(value is not None and value.is_prepared for value in values)

    @property
    def oldest_start_ms(self) -> int | None:
        """The wall clock's time in ms when the earliest open transaction began, or None. Safe to read from another
        thread."""
        values = [self.values.get(transactional_id) for transactional_id in tuple(self.open)]
        return min((value.start_ms for value in values if value is not None), default=None)

    def is_changing(self, transactional_id: str) -> bool:
        """Returns True while a record of the transactional id is being appended."""
        activity = self._activities.get(transactional_id)
        return activity is not None and activity.is_changing

    def is_decided(self, transactional_id: str) -> bool:
        """Returns True if the id's transaction has an outcome and its markers are being sent to the partitions."""
        value = self.values.get(transactional_id)
        return value is not None and value.state.is_decided

    def waiting(self, transactional_id: str) -> Iterable[IdRequest]:
        """Returns the requests that wait for the transactional id, in order."""
        activity = self._activities.get(transactional_id)
        return () if activity is None else activity.waiting

    # Changing

    def replay(self, record: TransactionRecord) -> None:
        """Applies one acknowledged record. Only this method changes `values`."""
        transactional_id, value = record
        if value is None:
            self.values.pop(transactional_id, None)
        else:
            self.values[transactional_id] = value
        if value is not None and value.state is TxnState.ONGOING:
            self.open.add(transactional_id)
        else:
            self.open.discard(transactional_id)

    def begin_change(self, transactional_id: str) -> None:
        """Notes that a record of the transactional id is being appended."""
        activity = self._activities.setdefault(transactional_id, _Activity())
        assert not activity.is_changing, transactional_id
        activity.is_changing = True

    def end_change(self, transactional_id: str) -> None:
        """Notes that the append has ended, whether it succeeded or not. The caller resumes or refuses the waiting
        requests."""
        self._activities[transactional_id].is_changing = False

    def wait(self, request: IdRequest, *, waiting_max: int) -> bool:
        """Makes the request wait for its transactional id. Returns False if `waiting_max` requests wait already."""
        waiting = self._activities.setdefault(request.transactional_id, _Activity()).waiting
        if len(waiting) >= waiting_max:
            return False
        waiting.append(request)
        return True

    def take_waiting(self, transactional_id: str) -> deque[IdRequest]:
        """Removes and returns the requests that wait for the transactional id, so that the caller can handle them."""
        activity = self._activities.get(transactional_id)
        if activity is None:
            return deque()
        waiting, activity.waiting = activity.waiting, deque()
        return waiting

    def give_up(self, request: IdRequest) -> None:
        """Removes a request that no longer waits."""
        self._activities[request.transactional_id].waiting.remove(request)
        self.forget_if_quiet(request.transactional_id)

    def forget_if_quiet(self, transactional_id: str) -> None:
        """Drops the activity if no change is under way and no request waits."""
        activity = self._activities.get(transactional_id)
        if activity is not None and not activity.is_changing and not activity.waiting:
            del self._activities[transactional_id]

    def active(self) -> Iterable[str]:
        """Returns the ids with a change under way or a waiting request."""
        return self._activities.keys()

    def check_invariants(self, changing: set[str]) -> None:
        """Asserts the module's invariants. `changing` are the ids that have a record which is being appended."""
        for transactional_id, activity in self._activities.items():
            assert activity.is_changing == (transactional_id in changing), transactional_id
            assert activity.is_changing or activity.waiting, transactional_id
        assert changing <= self._activities.keys(), changing
        for transactional_id, value in self.values.items():
            value.check_invariants()
            assert (transactional_id in self.open) == (value.state is TxnState.ONGOING), transactional_id
