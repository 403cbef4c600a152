"""One shard of `__transaction_state`: `step(event, now) -> effects`.

What is promised (`values`) changes only by records that the log has acknowledged. One change of a transactional id is
under way at a time: its record is being appended, or, once an outcome is decided, the partitions are being told.
Requests that come meanwhile wait, in order; Kafka answers them CONCURRENT_TRANSACTIONS and has the client poll, which
this does only after `wait_max_ms`. Partitions that wait to be added are added together.

A batch ledger and its transactions change together: a request about the ledger waits for those of its transactions
that are changing, and none begins to change while it does (`ledgers.py`). One append has it all.

A step takes its ids from a stock it shares with the other shards; who finds it empty is told to try again.

Invariants: an id that is loaded has a value, or one on its way; requests wait only while something is under way; the
open transactions are those of state Ongoing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import assert_never

from klamm.errors import ErrorCode
from klamm.ledger_ids import LedgerId
from klamm_coordinator.settings import TransactionSettings
from klamm_coordinator.shard.events import TimePassed, WriteAppended, WriteFailed
from klamm_coordinator.timers import Now, Timers
from klamm_coordinator.transaction import decisions, ledger_decisions
from klamm_coordinator.transaction.append_errors import requester_error
from klamm_coordinator.transaction.decisions import AbortFirst, Answer, Store, Wait
from klamm_coordinator.transaction.ledger_records import LedgerRecord
from klamm_coordinator.transaction.ledgers import Ledgers
from klamm_coordinator.transaction.messages import (
    AddPartitions,
    AddReply,
    DecideBatch,
    DeleteLedger,
    Effects,
    EndReply,
    EndTxn,
    InitProducerId,
    InitReply,
    LedgerReply,
    LedgerRequest,
    MarkersWritten,
    PrepareTxn,
    RegisterRun,
    Reply,
    Request,
    SendMarkers,
    VerifyPartitions,
    VerifyReply,
)
from klamm_coordinator.transaction.metadata import Producer, TransactionMetadata
from klamm_coordinator.transaction.producer_ids import ProducerIdStock
from klamm_coordinator.transaction.records import ShardRecord, TransactionRecord
from klamm_coordinator.transaction.states import TxnState
from klamm_coordinator.write import Write

Event = Request | MarkersWritten | WriteAppended | WriteFailed | TimePassed
Parkable = InitProducerId | AddPartitions | PrepareTxn | EndTxn
Decidable = InitProducerId | PrepareTxn | EndTxn


@dataclass(frozen=True, slots=True)
class _WaitTimer:
    """A request has waited long enough."""

    reply_id: int


@dataclass(frozen=True, slots=True)
class _WriteTimer:
    """An append takes too long to let its requesters wait on."""

    write_id: int


@dataclass(frozen=True, slots=True)
class _CompletionTimer:
    """Time to try again to store that a transaction has ended."""

    transactional_id: str


@dataclass(frozen=True, slots=True)
class _AbortTimer:
    """Time to look for transactions that have been open for too long."""


@dataclass(frozen=True, slots=True)
class _ExpiryTimer:
    """Time to look for transactional ids that nobody uses."""


_TimerKey = _WaitTimer | _WriteTimer | _CompletionTimer | _AbortTimer | _ExpiryTimer


@dataclass(slots=True)
class _Transaction:
    """What goes on about one transactional id."""

    is_changing: bool = False
    """A record of it is being appended."""
    waiting: deque[Parkable] = field(default_factory=deque)


@dataclass(slots=True)
class _PendingWrite:
    records: tuple[ShardRecord, ...]
    replies: list[tuple[int, Reply]]
    """Answered when the records are durable; none any more once their requesters were told that it takes too long."""


class TransactionShard:
    """Load it with `replay`, then `start`, then `step`."""

    def __init__(self, settings: TransactionSettings, stock: ProducerIdStock) -> None:
        self.values: dict[str, TransactionMetadata] = {}
        """What is durable, by transactional id."""
        self.ledgers = Ledgers()
        self._settings = settings
        self._stock = stock
        self._transactions: dict[str, _Transaction] = {}
        """Those that something goes on about."""
        self._open: set[str] = set()
        self._timers: Timers[_TimerKey] = Timers()
        self._parked: dict[int, Parkable | LedgerRequest] = {}
        """Who waits, by reply id."""
        self._pending: dict[int, _PendingWrite] = {}
        self._next_write_id = 0
        self._effects = Effects()
        """Of the step under way."""

    # Reading

    @property
    def pending_write_count(self) -> int:
        """Writes that are not decided."""
        return len(self._pending)

    @property
    def open_count(self) -> int:
        """Open transactions."""
        return len(self._open)

    @property
    def prepared_count(self) -> int:
        """Those of them that wait for their ledger's decision. Safe to call from another thread."""
        values = [self.values.get(one) for one in tuple(self._open)]
        return sum(value is not None and value.is_prepared for value in values)

    @property
    def oldest_start_ms(self) -> int | None:
        """When the earliest open transaction began. Safe to call from another thread."""
        values = [self.values.get(one) for one in tuple(self._open)]
        return min((value.start_ms for value in values if value is not None), default=None)

    def next_deadline_ms(self) -> int | None:
        """When to step with `TimePassed` at the latest, on the monotonic clock."""
        return self._timers.next_deadline_ms()

    # Changing

    def replay(self, record: ShardRecord) -> None:
        """Applies one acknowledged record: the one mutator of `values` and of the ledgers."""
        if isinstance(record, LedgerRecord):
            self.ledgers.replay(record)
            return
        transactional_id, value = record
        if value is None:
            self.values.pop(transactional_id, None)
        else:
            self.values[transactional_id] = value
        is_open = value is not None and value.state is TxnState.ONGOING
        if is_open:
            self._open.add(transactional_id)
        else:
            self._open.discard(transactional_id)
        self.ledgers.note_open(transactional_id, is_open=is_open)

    def start(self, now: Now) -> Effects:
        """Everything is loaded: outcomes that were decided before are told to the partitions again."""
        self._effects = Effects()
        for transactional_id, value in sorted(self.values.items()):
            if value.state.is_decided:
                self._end(transactional_id, value, now)
        self._schedule(_AbortTimer(), self._settings.abort_check_interval_ms, now)
        self._schedule(_ExpiryTimer(), self._settings.expiration_check_interval_ms, now)
        return self._effects

    def step(self, event: Event, now: Now) -> Effects:
        """The event, then whatever is due."""
        self._effects = Effects()
        self._handle(event, now)
        for timer in self._timers.pop_due(now.monotonic_ms):
            self._on_timer(timer, now)
        return self._effects

    def check_invariants(self) -> None:
        """Asserts what the module's docstring lists."""
        listed = [one.transactional_id for write in self._pending.values() for one in _transactions_of(write.records)]
        changing = set(listed)
        assert len(changing) == len(listed), self._pending
        for transactional_id, one in self._transactions.items():
            assert one.is_changing == (transactional_id in changing), transactional_id
            assert one.is_changing or one.waiting, transactional_id
            assert not one.waiting or self._is_busy(transactional_id), transactional_id
            for request in one.waiting:
                assert _WaitTimer(request.reply_id) in self._timers, request
        assert changing <= self._transactions.keys(), changing
        waiting = {request.reply_id for one in self._transactions.values() for request in one.waiting}
        of_ledgers = {reply_id for reply_id, one in self._parked.items() if isinstance(one, LedgerRequest)}
        assert waiting | of_ledgers == self._parked.keys(), (waiting, self._parked)
        self.ledgers.check_invariants(self._open, of_ledgers)
        for transactional_id, value in self.values.items():
            value.check_invariants()
            assert (transactional_id in self._open) == (value.state is TxnState.ONGOING), transactional_id

    def _handle(self, event: Event, now: Now) -> None:
        match event:
            case InitProducerId() | AddPartitions() | PrepareTxn() | EndTxn():
                self._on_request(event, now)
            case RegisterRun() | DecideBatch() | DeleteLedger():
                self._on_ledger_request(event, now)
            case VerifyPartitions():
                error, partitions = decisions.verify_partitions(event, self.values.get(event.transactional_id))
                self._reply(event.reply_id, VerifyReply(error=error, partitions=partitions))
            case MarkersWritten():
                self._on_markers_written(event, now)
            case WriteAppended():
                self._on_write_appended(event, now)
            case WriteFailed():
                self._on_write_failed(event, now)
            case TimePassed():
                pass
            case _:
                assert_never(event)

    # Requests

    def _on_request(self, request: Parkable, now: Now) -> None:
        going_on = self._transactions.get(request.transactional_id)
        if (going_on is not None and going_on.is_changing) or self.ledgers.holds(request.transactional_id):
            self._park(request, now)
        elif isinstance(request, AddPartitions):
            self._add_partitions((request,), now)
        else:
            self._decide(request, now)

    def _decide(self, request: Decidable, now: Now) -> None:
        current = self.values.get(request.transactional_id)
        if current is None and self._is_full() and isinstance(request, InitProducerId):
            self._reply(request.reply_id, InitReply(error=ErrorCode.POLICY_VIOLATION))
            return
        decision = self._decision(request, current, now)
        match decision:
            case LedgerReply():
                self._reply(request.reply_id, decision)
            case Answer(error):
                self._reply(request.reply_id, _answer(request, error, current))
            case Store(value):
                self._store(request.transactional_id, value, [(request.reply_id, _success(request, value))], now)
            case AbortFirst(value):
                self._store(request.transactional_id, value, [], now)
                self._park(request, now)
            case Wait():
                self._park(request, now)

    def _decision(
        self, request: Decidable, current: TransactionMetadata | None, now: Now
    ) -> Store | Answer | Wait | AbortFirst | LedgerReply:
        if isinstance(request, PrepareTxn):
            ledger = self.ledgers.of_part(request.transactional_id)
            return ledger_decisions.prepare(request, current, ledger, now.wall_ms)
        if isinstance(request, InitProducerId):
            return decisions.init_producer_id(request, current, self._stock, now.wall_ms)
        return decisions.end_txn(request, current, self._stock, now.wall_ms)

    def _add_partitions(self, requests: tuple[AddPartitions, ...], now: Now) -> None:
        transactional_id = requests[0].transactional_id
        decision = decisions.add_partitions(requests, self.values.get(transactional_id), now.wall_ms)
        match decision:
            case Answer(error):
                for request in requests:
                    self._reply(request.reply_id, AddReply(error=error))
            case Store(value):
                self._store(transactional_id, value, [(one.reply_id, AddReply()) for one in requests], now)
            case Wait():
                for request in requests:
                    self._park(request, now)
            case _:
                assert_never(decision)

    def _is_full(self) -> bool:
        return len(self.values) + len(self.ledgers.values) >= self._settings.id_count_max

    # Ledgers

    def _on_ledger_request(self, request: LedgerRequest, now: Now) -> None:
        ledgers, current = self.ledgers, self.ledgers.values.get(request.ledger)
        if current is None and self._is_full() and isinstance(request, RegisterRun):
            self._reply(request.reply_id, LedgerReply(error=ErrorCode.POLICY_VIOLATION))
        elif ledgers.is_claimed(request.ledger) or (
            ledger_decisions.needs_quiet(request, current) and not ledgers.is_quiet(request.ledger)
        ):
            self._park_at_ledger(request, now)
        else:
            self._decide_ledger(request, now)

    def _decide_ledger(self, request: LedgerRequest, now: Now) -> None:
        ledger = request.ledger
        open_transactions = {one: self.values[one] for one in self.ledgers.open_parts(ledger)}
        decision = ledger_decisions.decide(
            request, self.ledgers.values.get(ledger), open_transactions, self._stock, now.wall_ms
        )
        if isinstance(decision, LedgerReply):
            self._reply(request.reply_id, decision)
            return
        self.ledgers.begin_decision(ledger)
        self._note(ledger.key, f"{type(request).__name__} verdict={decision.reply.verdict.name}")
        self._write(decision.records, [(request.reply_id, decision.reply)], now)

    def _park_at_ledger(self, request: LedgerRequest, now: Now) -> None:
        waiting = self.ledgers.waiting(request.ledger)
        if len(waiting) >= self._settings.waiting_requests_max:
            self._reply(request.reply_id, LedgerReply(error=ErrorCode.CONCURRENT_TRANSACTIONS))
            return
        waiting.append(request)
        self._parked[request.reply_id] = request
        self._schedule(_WaitTimer(request.reply_id), self._settings.wait_max_ms, now)

    def _resume_ledger(self, ledger: LedgerId, now: Now) -> None:
        """Who waits for it is decided, in order, until something is being appended; else its transactions go on."""
        while self.ledgers.is_claimed(ledger) and self.ledgers.is_quiet(ledger):
            self._decide_ledger(self.ledgers.waiting(ledger).popleft(), now)
        for transactional_id in self.ledgers.release(ledger):
            self._resume(transactional_id, now)

    # Waiting

    def _park(self, request: Parkable, now: Now) -> None:
        one = self._transactions.setdefault(request.transactional_id, _Transaction())
        if len(one.waiting) >= self._settings.waiting_requests_max:
            self._reply(request.reply_id, _answer(request, ErrorCode.CONCURRENT_TRANSACTIONS, None))
            return
        one.waiting.append(request)
        if self.ledgers.holds(request.transactional_id):
            self.ledgers.hold(request.transactional_id)
        if request.reply_id not in self._parked:
            self._parked[request.reply_id] = request
            self._schedule(_WaitTimer(request.reply_id), self._settings.wait_max_ms, now)

    def _unpark(self, reply_id: int) -> None:
        if self._parked.pop(reply_id, None) is not None:
            self._timers.cancel(_WaitTimer(reply_id))

    def _resume(self, transactional_id: str, now: Now) -> None:
        """Nothing is being appended any more: who waits is decided, in order, until something is again."""
        one = self._transactions.get(transactional_id)
        if one is None:
            return
        waiting, one.waiting = one.waiting, deque()
        while waiting:
            request = waiting.popleft()
            if one.is_changing or self.ledgers.holds(transactional_id):
                one.waiting.append(request)
            elif isinstance(request, AddPartitions):
                self._add_partitions((request, *_take_adds_with(request, waiting)), now)
            else:
                self._decide(request, now)
        if one.waiting and self.ledgers.holds(transactional_id):
            self.ledgers.hold(transactional_id)
        self._forget_if_quiet(transactional_id)

    def _forget_if_quiet(self, transactional_id: str) -> None:
        one = self._transactions.get(transactional_id)
        if one is not None and not one.is_changing and not one.waiting:
            del self._transactions[transactional_id]

    def _is_busy(self, transactional_id: str) -> bool:
        one, value = self._transactions.get(transactional_id), self.values.get(transactional_id)
        return (
            (one is not None and one.is_changing)
            or (value is not None and value.state.is_decided)
            or self.ledgers.holds(transactional_id)
        )

    # Writes

    def _store(
        self,
        transactional_id: str,
        value: TransactionMetadata | None,
        replies: list[tuple[int, Reply]],
        now: Now,
    ) -> None:
        if _touches_ledger(value):
            self.ledgers.begin_change(transactional_id)
        self._write((TransactionRecord(transactional_id, value),), replies, now)

    def _write(self, records: tuple[ShardRecord, ...], replies: list[tuple[int, Reply]], now: Now) -> None:
        for record in _transactions_of(records):
            one = self._transactions.setdefault(record.transactional_id, _Transaction())
            assert not one.is_changing, record
            one.is_changing = True
        write_id = self._next_write_id
        self._next_write_id += 1
        self._pending[write_id] = _PendingWrite(records, replies)
        for reply_id, _ in replies:
            self._unpark(reply_id)
        self._schedule(_WriteTimer(write_id), self._settings.append_timeout_ms, now)
        self._effects.writes.append(Write(write_id=write_id, records=records))

    def _on_write_appended(self, event: WriteAppended, now: Now) -> None:
        write = self._take_write(event.write_id)
        for record in write.records:
            self.replay(record)
        for reply_id, reply in write.replies:
            self._reply(reply_id, reply)
        for transactional_id, value in _transactions_of(write.records):
            if value is not None and value.state.is_decided:
                self._end(transactional_id, value, now)
        self._go_on(write, now)

    def _on_write_failed(self, event: WriteFailed, now: Now) -> None:
        write = self._take_write(event.write_id)
        error = requester_error(event.error)
        for reply_id, reply in write.replies:
            self._reply(reply_id, type(reply)(error=error))
        for transactional_id, value in _transactions_of(write.records):
            self._note(transactional_id, f"append=failed error={event.error.name}")
            former = self.values.get(transactional_id)
            if former is not None and former.state.is_decided:
                self._schedule(_CompletionTimer(transactional_id), self._settings.completion_retry_ms, now)
            elif not write.replies and value is not None:
                # What waits for this abort would have it tried over and over.
                self._refuse_waiting(transactional_id, error)
        self._go_on(write, now)

    def _go_on(self, write: _PendingWrite, now: Now) -> None:
        """Who waited for the write, the ledger first."""
        head = write.records[0]
        if isinstance(head, LedgerRecord):
            self.ledgers.end_decision(head.ledger)
            self._resume_ledger(head.ledger, now)
        elif _touches_ledger(head.value):
            ledger = self.ledgers.end_change(head.transactional_id)
            if ledger is not None:
                self._resume_ledger(ledger, now)
        for record in _transactions_of(write.records):
            self._resume(record.transactional_id, now)

    def _take_write(self, write_id: int) -> _PendingWrite:
        assert next(iter(self._pending)) == write_id, (write_id, list(self._pending)[:3])
        write = self._pending.pop(write_id)
        self._timers.cancel(_WriteTimer(write_id))
        for record in _transactions_of(write.records):
            self._transactions[record.transactional_id].is_changing = False
        return write

    def _refuse_waiting(self, transactional_id: str, error: ErrorCode) -> None:
        one = self._transactions[transactional_id]
        waiting, one.waiting = one.waiting, deque()
        for request in waiting:
            self._reply(request.reply_id, _answer(request, error, None))

    # Ends

    def _end(self, transactional_id: str, value: TransactionMetadata, now: Now) -> None:
        if not value.partitions:
            self._complete(transactional_id, now)
            return
        self._effects.markers.append(
            SendMarkers(
                transactional_id=transactional_id,
                marker=Producer(value.producer_id, value.producer_epoch),
                committed=value.state is TxnState.PREPARE_COMMIT,
                transaction_version=value.transaction_version,
                partitions=value.partitions,
            )
        )

    def _on_markers_written(self, event: MarkersWritten, now: Now) -> None:
        value = self.values.get(event.transactional_id)
        if value is not None and event.marker == (value.producer_id, value.producer_epoch):
            self._complete(event.transactional_id, now)

    def _complete(self, transactional_id: str, now: Now) -> None:
        """All partitions have been told, for the first time or again."""
        value, going_on = self.values.get(transactional_id), self._transactions.get(transactional_id)
        if value is not None and value.state.is_decided and not (going_on is not None and going_on.is_changing):
            self._store(transactional_id, value.completed(now.wall_ms), [], now)

    # Timers

    def _on_timer(self, timer: _TimerKey, now: Now) -> None:
        match timer:
            case _WaitTimer(reply_id):
                self._give_up_waiting(self._parked[reply_id], now)
            case _WriteTimer(write_id):
                write = self._pending[write_id]
                for reply_id, reply in write.replies:
                    self._reply(reply_id, type(reply)(error=ErrorCode.COORDINATOR_NOT_AVAILABLE))
                write.replies = []
            case _CompletionTimer(transactional_id):
                self._complete(transactional_id, now)
            case _AbortTimer():
                self._abort_timed_out(now)
                self._schedule(timer, self._settings.abort_check_interval_ms, now)
            case _ExpiryTimer():
                self._expire(now)
                self._schedule(timer, self._settings.expiration_check_interval_ms, now)
            case _:
                assert_never(timer)

    def _give_up_waiting(self, request: Parkable | LedgerRequest, now: Now) -> None:
        if isinstance(request, LedgerRequest):
            self.ledgers.waiting(request.ledger).remove(request)
            self._reply(request.reply_id, LedgerReply(error=ErrorCode.CONCURRENT_TRANSACTIONS))
            self._resume_ledger(request.ledger, now)
            return
        self._transactions[request.transactional_id].waiting.remove(request)
        self._reply(request.reply_id, _answer(request, ErrorCode.CONCURRENT_TRANSACTIONS, None))
        self._forget_if_quiet(request.transactional_id)

    def _abort_timed_out(self, now: Now) -> None:
        for transactional_id in sorted(self._open):
            value = self.values[transactional_id]
            if now.wall_ms < self._times_out_ms(value) or self._is_busy(transactional_id):
                continue
            aborted = decisions.abort_by_coordinator(
                value, self._stock, now.wall_ms, last_producer_epoch=value.producer_epoch
            )
            if aborted is None:
                self._note(transactional_id, "abort=postponed there is no producer id")
            else:
                self._note(transactional_id, f"abort=timed-out prepared={value.is_prepared}")
                self._store(transactional_id, aborted, [], now)

    def _times_out_ms(self, value: TransactionMetadata) -> int:
        if value.is_prepared:
            return value.prepared_ms + self._settings.prepared_timeout_ms
        return value.start_ms + value.timeout_ms

    def _expire(self, now: Now) -> None:
        for transactional_id in self._expired(now):
            self._note(transactional_id, "expired")
            self._store(transactional_id, None, [], now)

    def _expired(self, now: Now) -> Iterable[str]:
        older_than_ms = now.wall_ms - self._settings.id_expiration_ms
        return sorted(
            transactional_id
            for transactional_id, value in self.values.items()
            if value.state.is_idle and value.last_update_ms <= older_than_ms and not self._is_busy(transactional_id)
        )

    # Effects

    def _reply(self, reply_id: int, reply: Reply) -> None:
        self._unpark(reply_id)
        self._effects.replies.append((reply_id, reply))

    def _note(self, transactional_id: str, what: str) -> None:
        self._effects.notes.append(f"transactional_id={transactional_id} {what}")

    def _schedule(self, timer: _TimerKey, delay_ms: int, now: Now) -> None:
        self._timers.schedule(timer, now.monotonic_ms + delay_ms)


def _take_adds_with(request: AddPartitions, waiting: deque[Parkable]) -> list[AddPartitions]:
    """Those that follow directly, of the same producer."""
    taken: list[AddPartitions] = []
    while waiting:
        following = waiting[0]
        if not isinstance(following, AddPartitions) or following.producer != request.producer:
            break
        taken.append(following)
        waiting.popleft()
    return taken


def _transactions_of(records: tuple[ShardRecord, ...]) -> list[TransactionRecord]:
    return [record for record in records if isinstance(record, TransactionRecord)]


def _touches_ledger(value: TransactionMetadata | None) -> bool:
    """Whether this value opens, changes or ends a transaction, which a ledger might be about to end."""
    return value is not None and not value.state.is_idle


def _success(request: Decidable, value: TransactionMetadata) -> Reply:
    match request:
        case InitProducerId():
            return InitReply(producer=value.producer)
        case PrepareTxn():
            return LedgerReply()
        case EndTxn():
            return EndReply(producer=value.producer)


def _answer(request: Parkable, error: ErrorCode, current: TransactionMetadata | None) -> Reply:
    """Without an error it is about the current producer."""
    if isinstance(request, AddPartitions):
        return AddReply(error=error)
    if isinstance(request, PrepareTxn):
        return LedgerReply(error=error)
    reply = InitReply if isinstance(request, InitProducerId) else EndReply
    if error is not ErrorCode.NONE:
        return reply(error=error)
    assert current is not None, request
    return reply(producer=current.producer)
