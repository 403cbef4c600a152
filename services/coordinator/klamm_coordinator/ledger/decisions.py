"""The rules that decide about a request to a ledger without a change under way.

Before a batch is decided, it is safe to abort any part of it, because the query writes the part again. So a new run
aborts the transactions that earlier runs left open. A decision to commit names the parts to commit, and aborts all
others. If one of the named parts was aborted before (by its timeout or an operator), the whole decision fails. Each
rule changes the ledger and its transactions in one append.

(KIP-939 has such transactions. There, an external coordinator decides; here, Klamm's coordinator does.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from klamm.errors import ErrorCode
from klamm_coordinator.ledger.ledger import BatchLedger, Verdict
from klamm_coordinator.ledger.messages import (
    DecideBatch,
    DeleteLedger,
    LedgerReply,
    LedgerRequest,
    Part,
    RegisterRun,
)
from klamm_coordinator.ledger.records import LedgerRecord
from klamm_coordinator.transaction.decisions import (
    NO_ID,
    AnswerNow,
    RetryAfterWrite,
    Store,
    ended_with_epoch,
    refusal,
)
from klamm_coordinator.transaction.messages import PrepareTxn
from klamm_coordinator.transaction.metadata import NO_EPOCH, TransactionMetadata
from klamm_coordinator.transaction.producer_ids import ProducerIdPool
from klamm_coordinator.transaction.records import TransactionRecord
from klamm_coordinator.transaction.states import TxnState

Transactions = Mapping[str, TransactionMetadata]
"""The state of transactions by transactional id."""


@dataclass(frozen=True, slots=True)
class AppendRecords:
    """The decision to append these records together, and to send the answer after that."""

    records: tuple[LedgerRecord | TransactionRecord, ...]
    reply: LedgerReply


NOT_REGISTERED = LedgerReply(error=ErrorCode.INVALID_TXN_STATE, problem="no run has registered with this ledger")


def needs_quiet(request: LedgerRequest, ledger: BatchLedger | None) -> bool:
    """Returns True if the request must wait until no transaction of the ledger is changing. The registration of a run's
    next task need not wait, because it changes nothing."""
    return not (isinstance(request, RegisterRun) and ledger is not None and request.run_id == ledger.run_id)


def prepare(
    request: PrepareTxn, current: TransactionMetadata | None, ledger: BatchLedger | None, now_ms: int
) -> Store | AnswerNow | RetryAfterWrite | LedgerReply:
    """Decides about a PrepareTxn. An AnswerNow without an error means that the transaction is prepared already. A
    LedgerReply means that the run must not prepare it."""
    if ledger is None:
        return NOT_REGISTERED
    verdict = ledger.verdict(request.run_id, request.batch_id)
    if verdict is not Verdict.UNDECIDED:
        return LedgerReply(verdict=verdict)
    if current is None:
        return AnswerNow(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if request.producer != current.producer:
        return AnswerNow(refusal(request.producer, current))
    if current.state.is_decided:
        return RetryAfterWrite()
    if current.state is not TxnState.ONGOING:
        return AnswerNow(ErrorCode.INVALID_TXN_STATE)
    return AnswerNow() if current.is_prepared else Store(current.prepared(now_ms))


def decide(
    request: LedgerRequest,
    ledger: BatchLedger | None,
    open_transactions: Transactions,
    pool: ProducerIdPool,
    now_ms: int,
) -> AppendRecords | LedgerReply:
    """Decides about a request to a ledger. `open_transactions` are the open transactions of this ledger."""
    match request:
        case RegisterRun():
            return _register(request, ledger, open_transactions, pool, now_ms)
        case DecideBatch():
            return _decide(request, ledger, open_transactions, pool, now_ms)
        case DeleteLedger():
            if ledger is None:
                return LedgerReply(error=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
            return _ending(LedgerRecord(request.ledger, None), LedgerReply(), (), open_transactions, pool, now_ms)


def _register(
    request: RegisterRun,
    ledger: BatchLedger | None,
    open_transactions: Transactions,
    pool: ProducerIdPool,
    now_ms: int,
) -> AppendRecords | LedgerReply:
    if ledger is None:
        after = BatchLedger(run_id=request.run_id, last_update_ms=now_ms)
    elif request.run_id == ledger.run_id:
        return LedgerReply(verdict=ledger.verdict(request.run_id, request.batch_id))
    elif request.run_id in ledger.fenced_run_ids:
        return LedgerReply(verdict=Verdict.FENCED)
    elif request.batch_id < ledger.committed_batch_id:
        # A run with an old checkpoint must not fence the run with the right checkpoint.
        return LedgerReply(verdict=Verdict.REWOUND)
    else:
        after = ledger.taken_over(request.run_id, now_ms)
    reply = LedgerReply(verdict=after.verdict(request.run_id, request.batch_id))
    return _ending(LedgerRecord(request.ledger, after), reply, (), open_transactions, pool, now_ms)


def _decide(
    request: DecideBatch,
    ledger: BatchLedger | None,
    open_transactions: Transactions,
    pool: ProducerIdPool,
    now_ms: int,
) -> AppendRecords | LedgerReply:
    if ledger is None:
        return NOT_REGISTERED
    verdict = ledger.verdict(request.run_id, request.batch_id)
    if verdict is not Verdict.UNDECIDED:
        return LedgerReply(verdict=verdict)
    for part in request.parts:
        if not _is_prepared(part, open_transactions):
            problem = f"{part.transactional_id} is not prepared by {part.producer} any more"
            return LedgerReply(error=ErrorCode.INVALID_TXN_STATE, problem=problem)
    after = ledger.decided(request.batch_id, now_ms, committed=request.committed)
    reply = LedgerReply(verdict=after.verdict(request.run_id, request.batch_id))
    return _ending(LedgerRecord(request.ledger, after), reply, request.parts, open_transactions, pool, now_ms)


def _is_prepared(part: Part, open_transactions: Transactions) -> bool:
    value = open_transactions.get(part.transactional_id)
    return value is not None and value.is_prepared and value.producer == part.producer


def _ending(
    record: LedgerRecord,
    reply: LedgerReply,
    committed: tuple[Part, ...],
    open_transactions: Transactions,
    pool: ProducerIdPool,
    now_ms: int,
) -> AppendRecords | LedgerReply:
    """Ends every open transaction of the ledger together with its record. Commits the parts in `committed`, aborts all
    others."""
    counting = {part.transactional_id for part in committed}
    records: list[LedgerRecord | TransactionRecord] = [record]
    for transactional_id, value in sorted(open_transactions.items()):
        ended = ended_with_epoch(
            value, pool, now_ms, committed=transactional_id in counting, last_producer_epoch=NO_EPOCH
        )
        if ended is None:
            return LedgerReply(error=NO_ID.error)
        records.append(TransactionRecord(transactional_id, ended))
    return AppendRecords(tuple(records), reply)
