"""The rules of a shard of `__transaction_state`: of transactional ids, and of the batch ledgers that end many
transactions at once.

One change of a transactional id is under way at a time. Its record is being appended or, once the outcome is decided,
its markers are being sent to the partitions. Requests that arrive meanwhile wait, in order, for at most `wait_max_ms`.
Partitions that wait to be added are added together.

A batch ledger and its transactions change together: a request about the ledger waits for those of its transactions that
are changing, and none of them begins to change while the request waits (`ledgers.py`). One append has all records of
the change.

A step takes producer ids from a stock that it shares with the coordinator's other shards. If the stock is empty, the
request gets an error that clients retry.

Invariants: those of the ids, the ledgers and the requests that wait; requests wait only while something is under way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import Any, assert_never

from klamm.errors import ErrorCode
from klamm.ledger_ids import LedgerId
from klamm_coordinator.ledger import decisions as ledger_decisions
from klamm_coordinator.ledger.ledger import FENCED_RUNS_MAX, BatchLedger
from klamm_coordinator.ledger.ledgers import Ledgers
from klamm_coordinator.ledger.messages import (
    DecideBatch,
    DeleteLedger,
    LedgerReply,
    LedgerRequest,
    RegisterRun,
)
from klamm_coordinator.ledger.records import LedgerRecord
from klamm_coordinator.runtime.accounts import Accounts
from klamm_coordinator.runtime.log_write import LogWrite
from klamm_coordinator.runtime.replayer import RecordReplayer
from klamm_coordinator.runtime.timers import Timers
from klamm_coordinator.runtime.write_queue import PendingWrite
from klamm_coordinator.transaction import decisions
from klamm_coordinator.transaction.decisions import (
    AbortThenRetry,
    AnswerNow,
    RetryAfterWrite,
    Store,
)
from klamm_coordinator.transaction.messages import (
    AddPartitions,
    AddReply,
    EndReply,
    EndTxn,
    IdRequest,
    InitProducerId,
    InitReply,
    MarkersWritten,
    PrepareTxn,
    VerifyPartitions,
    VerifyReply,
)
from klamm_coordinator.transaction.metadata import TransactionMetadata
from klamm_coordinator.transaction.producer_ids import ProducerIdPool
from klamm_coordinator.transaction.records import TransactionRecord
from klamm_coordinator.transaction.transactional_ids import TransactionalIds
from klamm_coordinator.transaction_shard.endings import (
    AbortTimer,
    CompletionTimer,
    IdExpiryTimer,
    TransactionEndings,
)
from klamm_coordinator.transaction_shard.messages import Reply, TransactionEvent
from klamm_coordinator.transaction_shard.parked_requests import ParkedRequests, WaitTimer
from klamm_coordinator.transaction_shard.records import ShardRecord, decode_shard_record
from klamm_coordinator.transaction_shard.refusals import refused, requester_error
from klamm_coordinator.transaction_shard.settings import TransactionSettings
from klamm_coordinator.transaction_shard.sizes import (
    ID_BYTES,
    LEDGER_BYTES,
    PARTITION_BYTES,
    RUN_BYTES,
    id_bytes,
    ledger_bytes,
    record_key,
    request_bytes,
)
from klamm_coordinator.transaction_shard.transaction_context import TransactionContext
from klamm_server.runtime.byte_shares import NOBODY, ByteShares, unbounded
from klamm_server.runtime.fair_share import BEGIN, CONTINUE

Decidable = InitProducerId | PrepareTxn | EndTxn
TimerKey = WaitTimer | CompletionTimer | AbortTimer | IdExpiryTimer
Replies = list[tuple[int, Reply]]


class TransactionRules:
    """The rules of a shard of transactions, for a `ShardRuntime`."""

    waiting_count = 0
    """No request waits for a write here. The rules bound the waiting requests of each transactional id and ledger
    themselves."""

    def __init__(self, settings: TransactionSettings, pool: ProducerIdPool, shares: ByteShares | None = None) -> None:
        """`shares` bound the memory of this shard's transactional ids together with those of other shards."""
        self._accounts = Accounts(unbounded() if shares is None else shares)
        self._in_flight: dict[int, list[tuple[str, int]]] = {}
        """The keys that undecided writes make larger, with the bytes, by write."""
        self.ids = TransactionalIds()
        self.ledgers = Ledgers()
        self.write_timeout_ms = settings.append_timeout_ms
        self._settings = settings
        self._pool = pool
        self._parked = ParkedRequests(self._accounts)
        self._endings = TransactionEndings(self.ids, self.ledgers, pool)

    def summary(self) -> str:
        """Returns the numbers of transactional ids and open transactions, for the program's log."""
        return f"transactional_ids={len(self.ids.values)} open={len(self.ids.open)}"

    def replayer(self) -> RecordReplayer[ShardRecord]:
        """Returns an object that loads the shard's state from its log."""
        return RecordReplayer(decode_shard_record, self.replay)

    def replay(self, record: ShardRecord) -> None:
        """Applies one acknowledged record. Only this method changes the durable state."""
        added_bytes = self._added_bytes(record)
        if added_bytes:
            self._accounts.add(record_key(record), added_bytes)
        if isinstance(record, LedgerRecord):
            self.ledgers.replay(record)
        else:
            self.ids.replay(record)
            self.ledgers.note_open(record.transactional_id, is_open=record.transactional_id in self.ids.open)

    def start(self, context: TransactionContext) -> None:
        """Continues decided transactions and sets the shard's timers, after all records were loaded."""
        self._endings.start(context)

    def close(self) -> None:
        """Gives back the memory of all transactional ids, because the coordinator drops the shard."""
        self._accounts.close()

    def passes_when_full(self, request: Any) -> bool:
        """Returns False, because no request is accepted while too many writes wait."""
        return False

    def on_refused(self, request: Any, context: TransactionContext) -> None:
        """Does nothing: a refused request has no effect."""

    def handle(self, event: TransactionEvent, context: TransactionContext) -> None:
        """Handles a request about a transactional id or a ledger, or the report that markers were written."""
        match event:
            case InitProducerId() | AddPartitions() | PrepareTxn() | EndTxn():
                self._on_request(event, context)
            case RegisterRun() | DecideBatch() | DeleteLedger():
                self._on_ledger_request(event, context)
            case VerifyPartitions():
                error, partitions = decisions.verify_partitions(event, self.ids.values.get(event.transactional_id))
                context.reply(event.reply_id, VerifyReply(error=error, partitions=partitions))
            case MarkersWritten():
                self._endings.on_markers_written(event, context)
            case _:
                assert_never(event)

    def on_timer(self, timer: TimerKey, context: TransactionContext) -> None:
        """Handles a due timer."""
        match timer:
            case WaitTimer(reply_id):
                self._give_up_waiting(self._parked[reply_id], context)
            case CompletionTimer(transactional_id):
                self._endings.complete(transactional_id, context)
            case AbortTimer():
                self._endings.abort_timed_out(context)
            case IdExpiryTimer():
                self._endings.expire(context)
            case _:
                assert_never(timer)

    def check_invariants(self, timers: Timers[Any], writes: Collection[LogWrite[ShardRecord]]) -> None:
        """Asserts the invariants that the module's docstring lists."""
        listed = [transaction.transactional_id for write in writes for transaction in _transactions_of(write.records)]
        assert len(set(listed)) == len(listed), listed
        self.ids.check_invariants(set(listed))
        waiting = {
            active_id: [request.reply_id for request in self.ids.waiting(active_id)] for active_id in self.ids.active()
        }
        for transactional_id, reply_ids in waiting.items():
            assert not reply_ids or self._endings.is_busy(transactional_id), transactional_id
        of_ids = [reply_id for reply_ids in waiting.values() for reply_id in reply_ids]
        of_ledgers = self._parked.check_invariants(of_ids, timers)
        self.ledgers.check_invariants(self.ids.open, of_ledgers)
        self._check_accounts()

    def _check_accounts(self) -> None:
        """Asserts that the accounts have the size of each id and ledger, counted one by one."""
        sizes = self._parked.sizes()
        for key, in_flight_bytes in (entry for added in self._in_flight.values() for entry in added):
            sizes[key] += in_flight_bytes
        for transactional_id, value in self.ids.values.items():
            sizes[transactional_id] += id_bytes(transactional_id, value)
        for ledger, ledger_value in self.ledgers.values.items():
            sizes[ledger.key] += ledger_bytes(ledger, ledger_value)
        self._accounts.check_invariants(dict(sizes))

    # Requests about transactional ids

    def _on_request(self, request: IdRequest, context: TransactionContext) -> None:
        if self._must_wait(request.transactional_id):
            self._park(request, context)
        elif isinstance(request, AddPartitions):
            self._add_partitions((request,), context)
        else:
            self._decide(request, context)

    def _decide(self, request: Decidable, context: TransactionContext) -> None:
        if isinstance(request, InitProducerId):
            self._accounts.requester = request.user
            self._accounts.claim(request.transactional_id)
            self._carry_out(request, context)
            self._accounts.requester = NOBODY
        else:
            self._carry_out(request, context)

    def _carry_out(self, request: Decidable, context: TransactionContext) -> None:
        current = self.ids.values.get(request.transactional_id)
        if current is None and isinstance(request, InitProducerId) and not self._may_begin(request, context):
            self._parked.answer(request.reply_id, InitReply(error=ErrorCode.POLICY_VIOLATION), context)
            return
        ledger = self.ledgers.of_part(request.transactional_id)
        decision = _decision(request, current, ledger, self._pool, context.now.wall_ms)
        match decision:
            case LedgerReply():
                self._parked.answer(request.reply_id, decision, context)
            case AnswerNow(error):
                self._parked.answer(request.reply_id, _answer(request, error, current), context)
            case Store(value):
                self._store(request.transactional_id, value, [(request.reply_id, _success(request, value))], context)
            case AbortThenRetry(value):
                self._store(request.transactional_id, value, [], context)
                self._park(request, context)
            case RetryAfterWrite():
                self._park(request, context)

    def _add_partitions(self, requests: tuple[AddPartitions, ...], context: TransactionContext) -> None:
        transactional_id = requests[0].transactional_id
        decision = decisions.add_partitions(requests, self.ids.values.get(transactional_id), context.now.wall_ms)
        match decision:
            case AnswerNow(error):
                for request in requests:
                    self._parked.answer(request.reply_id, AddReply(error=error), context)
            case Store(value) if not self._may_grow(transactional_id, value, context):
                for request in requests:
                    self._parked.answer(request.reply_id, AddReply(error=ErrorCode.TRANSACTION_ABORTABLE), context)
            case Store(value):
                self._store(transactional_id, value, [(request.reply_id, AddReply()) for request in requests], context)
            case RetryAfterWrite():
                for request in requests:
                    self._park(request, context)
            case _:
                assert_never(decision)

    def _may_begin(self, request: InitProducerId | RegisterRun, context: TransactionContext) -> bool:
        """Returns True if there is room for another transactional id or ledger."""
        if self._is_full():
            return False
        if isinstance(request, InitProducerId):
            return self._admits(request.transactional_id, ID_BYTES + 4 * len(request.transactional_id), BEGIN, context)
        return self._admits(request.ledger.key, LEDGER_BYTES + FENCED_RUNS_MAX * RUN_BYTES, BEGIN, context)

    def _may_grow(self, transactional_id: str, value: TransactionMetadata, context: TransactionContext) -> bool:
        """Returns True if there is room for the partitions that the transaction then has."""
        added_bytes = self._added_bytes(TransactionRecord(transactional_id, value))
        return self._admits(transactional_id, added_bytes, CONTINUE, context)

    def _admits(self, key: str, added_bytes: int, times_free: int, context: TransactionContext) -> bool:
        is_admitted = self._accounts.admits(key, added_bytes, times_free)
        if not is_admitted:
            self._accounts.refuse("transactional_id", key, added_bytes, context)
        return is_admitted

    def _added_bytes(self, record: ShardRecord) -> int:
        """Returns the bytes by which the record makes its id or ledger larger."""
        if isinstance(record, LedgerRecord):
            former_ledger = self.ledgers.values.get(record.ledger)
            return ledger_bytes(record.ledger, record.value) - ledger_bytes(record.ledger, former_ledger)
        former, value = self.ids.values.get(record.transactional_id), record.value
        if former is not None and value is not None:
            return PARTITION_BYTES * (len(value.partitions) - len(former.partitions))
        return id_bytes(record.transactional_id, value) - id_bytes(record.transactional_id, former)

    def _is_full(self) -> bool:
        return len(self.ids.values) + len(self.ledgers.values) >= self._settings.id_count_max

    # Requests about ledgers

    def _on_ledger_request(self, request: LedgerRequest, context: TransactionContext) -> None:
        if isinstance(request, RegisterRun):
            self._accounts.requester = request.user
        self._begin_at_ledger(request, context)
        self._accounts.requester = NOBODY

    def _begin_at_ledger(self, request: LedgerRequest, context: TransactionContext) -> None:
        ledgers, current = self.ledgers, self.ledgers.values.get(request.ledger)
        if current is None and isinstance(request, RegisterRun) and not self._may_begin(request, context):
            context.reply(request.reply_id, LedgerReply(error=ErrorCode.POLICY_VIOLATION))
        elif ledgers.is_claimed(request.ledger) or (
            ledger_decisions.needs_quiet(request, current) and not ledgers.is_quiet(request.ledger)
        ):
            self._park_at_ledger(request, context)
        else:
            self._decide_ledger(request, context)

    def _decide_ledger(self, request: LedgerRequest, context: TransactionContext) -> None:
        if isinstance(request, RegisterRun):
            self._accounts.requester = request.user
            self._accounts.claim(request.ledger.key)
        self._carry_out_at_ledger(request, context)
        self._accounts.requester = NOBODY

    def _carry_out_at_ledger(self, request: LedgerRequest, context: TransactionContext) -> None:
        ledger = request.ledger
        open_transactions = {open_part: self.ids.values[open_part] for open_part in self.ledgers.open_parts(ledger)}
        decision = ledger_decisions.decide(
            request, self.ledgers.values.get(ledger), open_transactions, self._pool, context.now.wall_ms
        )
        if isinstance(decision, LedgerReply):
            self._parked.answer(request.reply_id, decision, context)
            return
        verdict = decision.reply.verdict.name
        context.note(
            f"decided about a batch, transactional_id={ledger.key} request={type(request).__name__} verdict={verdict}"
        )
        self._write(decision.records, [(request.reply_id, decision.reply)], context)

    def _park_at_ledger(self, request: LedgerRequest, context: TransactionContext) -> None:
        waiting = self.ledgers.waiting(request.ledger)
        if len(waiting) >= self._settings.waiting_requests_max:
            context.reply(request.reply_id, LedgerReply(error=ErrorCode.CONCURRENT_TRANSACTIONS))
            return
        waiting.append(request)
        self._parked.park(request, context)

    def _resume_ledger(self, ledger: LedgerId, context: TransactionContext) -> None:
        """Decides the ledger's waiting requests in order, until one of them appends a record. If none does, continues
        the requests that waited for the ledger."""
        while self.ledgers.is_claimed(ledger) and self.ledgers.is_quiet(ledger):
            self._decide_ledger(self.ledgers.waiting(ledger).popleft(), context)
        for transactional_id in self.ledgers.release(ledger):
            self._resume_id(transactional_id, context)

    # Waiting

    def _must_wait(self, transactional_id: str) -> bool:
        return self.ids.is_changing(transactional_id) or self.ledgers.holds(transactional_id)

    def _park(self, request: IdRequest, context: TransactionContext) -> None:
        admits_writes = self._admits(request.transactional_id, request_bytes(request), CONTINUE, context)
        if not admits_writes or not self.ids.wait(request, waiting_max=self._settings.waiting_requests_max):
            self._parked.answer(request.reply_id, _answer(request, ErrorCode.CONCURRENT_TRANSACTIONS, None), context)
            return
        if self.ledgers.holds(request.transactional_id):
            self.ledgers.hold(request.transactional_id)
        self._parked.park(request, context)

    def _resume_id(self, transactional_id: str, context: TransactionContext) -> None:
        """Decides the id's waiting requests in order after an append has ended, until one of them appends a record
        again."""
        waiting = self.ids.take_waiting(transactional_id)
        while waiting:
            request = waiting.popleft()
            if self._must_wait(transactional_id):
                self._park(request, context)
            elif isinstance(request, AddPartitions):
                self._add_partitions((request, *_take_adds_with(request, waiting)), context)
            else:
                self._decide(request, context)
        self.ids.forget_if_quiet(transactional_id)

    def _refuse_waiting(self, transactional_id: str, error: ErrorCode, context: TransactionContext) -> None:
        for request in self.ids.take_waiting(transactional_id):
            self._parked.answer(request.reply_id, _answer(request, error, None), context)

    def _give_up_waiting(self, request: IdRequest | LedgerRequest, context: TransactionContext) -> None:
        if isinstance(request, LedgerRequest):
            self.ledgers.waiting(request.ledger).remove(request)
            self._parked.answer(request.reply_id, LedgerReply(error=ErrorCode.CONCURRENT_TRANSACTIONS), context)
            self._resume_ledger(request.ledger, context)
        else:
            self.ids.give_up(request)
            self._parked.answer(request.reply_id, _answer(request, ErrorCode.CONCURRENT_TRANSACTIONS, None), context)

    # Writes

    def _store(
        self, transactional_id: str, value: TransactionMetadata, replies: Replies, context: TransactionContext
    ) -> None:
        self._write((TransactionRecord(transactional_id, value),), replies, context)

    def _write(self, records: tuple[ShardRecord, ...], replies: Replies, context: TransactionContext) -> None:
        for reply_id, _ in replies:
            self._parked.unpark(reply_id, context)
        context.append(records, replies=tuple(replies))

    def begin_write(self, write: LogWrite[ShardRecord]) -> None:
        """Notes the transactional ids and the ledger that the write changes, and the memory that they will take."""
        for record in write.records:
            added_bytes = self._added_bytes(record)
            if added_bytes > 0:
                self._in_flight.setdefault(write.write_id, []).append((record_key(record), added_bytes))
                self._accounts.add(record_key(record), added_bytes)
        head = write.records[0]
        if isinstance(head, LedgerRecord):
            self.ledgers.begin_decision(head.ledger)
        elif _touches_ledger(head.value):
            self.ledgers.begin_change(head.transactional_id)
        for record in _transactions_of(write.records):
            self.ids.begin_change(record.transactional_id)

    def end_write(self, write: LogWrite[ShardRecord], *, is_appended: bool) -> None:
        """Notes that the write has ended. If it was appended, applies its records."""
        for transactional_id, _ in _transactions_of(write.records):
            self.ids.end_change(transactional_id)
        for record in write.records if is_appended else ():
            self.replay(record)
        for key, added_bytes in self._in_flight.pop(write.write_id, ()):
            self._accounts.add(key, -added_bytes)

    def refused(self, reply: Reply, broker_error: ErrorCode) -> Reply:
        """Returns the error that is sent instead of `reply`, because the write failed or takes too long."""
        return refused(reply, broker_error)

    def follow(self, then: Any, broker_error: ErrorCode, context: TransactionContext) -> None:
        """Fails, because only answers wait for a write of these rules."""
        raise AssertionError(then)

    def resume(self, pending: PendingWrite[ShardRecord], broker_error: ErrorCode, context: TransactionContext) -> None:
        """Continues the requests that waited for a write. Requests about its ledger come first."""
        records = pending.write.records
        for transactional_id, value in _transactions_of(records):
            if broker_error is ErrorCode.NONE:
                self._endings.on_stored(transactional_id, value, context)
                continue
            self._endings.on_not_stored(transactional_id, broker_error, context)
            if not pending.replies and value is not None and not self.ids.is_decided(transactional_id):
                # Requests that wait for this abort would retry it in a loop.
                self._refuse_waiting(transactional_id, requester_error(broker_error), context)
        head = records[0]
        if isinstance(head, LedgerRecord):
            self.ledgers.end_decision(head.ledger)
            self._resume_ledger(head.ledger, context)
        elif _touches_ledger(head.value):
            ledger = self.ledgers.end_change(head.transactional_id)
            if ledger is not None:
                self._resume_ledger(ledger, context)
        for record in _transactions_of(records):
            self._resume_id(record.transactional_id, context)


def _decision(
    request: Decidable,
    current: TransactionMetadata | None,
    ledger: BatchLedger | None,
    pool: ProducerIdPool,
    now_ms: int,
) -> Store | AnswerNow | RetryAfterWrite | AbortThenRetry | LedgerReply:
    match request:
        case PrepareTxn():
            return ledger_decisions.prepare(request, current, ledger, now_ms)
        case InitProducerId():
            return decisions.init_producer_id(request, current, pool, now_ms)
        case EndTxn():
            return decisions.end_txn(request, current, pool, now_ms)


def _take_adds_with(request: AddPartitions, waiting: deque[IdRequest]) -> list[AddPartitions]:
    """Removes and returns the AddPartitions requests of the same producer that follow directly."""
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
    """Returns True if this value opens, changes or ends a transaction, which a ledger might be about to end."""
    return value is not None and not value.state.is_idle


def _success(request: Decidable, value: TransactionMetadata) -> Reply:
    match request:
        case InitProducerId():
            return InitReply(producer=value.producer)
        case PrepareTxn():
            return LedgerReply()
        case EndTxn():
            return EndReply(producer=value.producer)


def _answer(request: IdRequest, error: ErrorCode, current: TransactionMetadata | None) -> Reply:
    """Returns the answer to a request. Without an error, it names the current producer."""
    if isinstance(request, AddPartitions):
        return AddReply(error=error)
    if isinstance(request, PrepareTxn):
        return LedgerReply(error=error)
    reply = InitReply if isinstance(request, InitProducerId) else EndReply
    if error is not ErrorCode.NONE:
        return reply(error=error)
    assert current is not None, request
    return reply(producer=current.producer)
