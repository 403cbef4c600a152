"""The rules of requests for a transactional id without a change under way.

Each rule returns the value to store, or the reason why there is none. The rules follow Kafka's TransactionCoordinator,
with three differences:

- If the coordinator aborted a transaction (it timed out, or an operator ended it), its producer gets
  TRANSACTION_ABORTABLE and may continue after an abort (KIP-588). A producer that another one has replaced gets
  PRODUCER_FENCED.
- An InitProducerId that names an epoch does not end a transaction of a newer one.
- A repeated EndTxn is answered as soon as the decision is durable, as the first one was.
"""

from __future__ import annotations

from dataclasses import dataclass

from klamm.errors import ErrorCode
from klamm.ledger_ids import ledger_of
from klamm.model import NO_PRODUCER_ID
from klamm_coordinator.transaction.messages import AddPartitions, EndTxn, InitProducerId, VerifyPartitions
from klamm_coordinator.transaction.metadata import (
    NO_EPOCH,
    ProducerIdAndEpoch,
    TransactionMetadata,
    new_transactional_id,
)
from klamm_coordinator.transaction.producer_ids import ProducerIdPool
from klamm_coordinator.transaction.states import TxnState

_ABORTED = frozenset({TxnState.PREPARE_ABORT, TxnState.COMPLETE_ABORT})


@dataclass(frozen=True, slots=True)
class Store:
    """The decision to store this value, and to send the answer after that."""

    value: TransactionMetadata


@dataclass(frozen=True, slots=True)
class AnswerNow:
    """The decision to answer at once, because nothing has to be written."""

    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class RetryAfterWrite:
    """The request must wait until the change under way has ended."""


@dataclass(frozen=True, slots=True)
class AbortThenRetry:
    """The request must wait until `value`, which aborts the open transaction, has been written."""

    value: TransactionMetadata


NO_ID = AnswerNow(ErrorCode.COORDINATOR_NOT_AVAILABLE)
"""The answer while no producer id is available. Clients retry after it."""


def init_producer_id(
    request: InitProducerId, current: TransactionMetadata | None, pool: ProducerIdPool, now_ms: int
) -> Store | AnswerNow | RetryAfterWrite | AbortThenRetry:
    """Decides about a producer's request for an id and epoch. An AnswerNow without an error gives it
    `current.producer`."""
    if current is None:
        producer_id = pool.take()
        if producer_id is None:
            return NO_ID
        return Store(new_transactional_id(producer_id, timeout_ms=request.timeout_ms, now_ms=now_ms))
    if request.expected is not None and not _may_be_current(request.expected, current):
        return AnswerNow(ErrorCode.PRODUCER_FENCED)
    if current.state.is_decided:
        return RetryAfterWrite()
    if current.state is TxnState.ONGOING:
        return _take_over_ongoing(request.expected, current, pool, now_ms)
    return _next_producer(request, current, pool, now_ms)


def _may_be_current(expected: ProducerIdAndEpoch, current: TransactionMetadata) -> bool:
    return expected == (current.producer_id, current.producer_epoch) or current.was_last(expected)


def _take_over_ongoing(
    expected: ProducerIdAndEpoch | None, current: TransactionMetadata, pool: ProducerIdPool, now_ms: int
) -> AnswerNow | AbortThenRetry:
    if expected is not None and expected != (current.producer_id, current.producer_epoch):
        # The request is older than the transaction. Its producer has received the answer and continued.
        return AnswerNow(ErrorCode.PRODUCER_FENCED)
    last_producer_epoch = NO_EPOCH if expected is None else expected.producer_epoch
    value = abort_by_coordinator(current, pool, now_ms, last_producer_epoch=last_producer_epoch)
    return NO_ID if value is None else AbortThenRetry(value)


def _next_producer(
    request: InitProducerId, current: TransactionMetadata, pool: ProducerIdPool, now_ms: int
) -> Store | AnswerNow:
    expected = request.expected
    if expected is not None and current.was_last(expected):
        # The producer has a new epoch, but the answer with it was lost.
        return AnswerNow()
    producer = _bumped(current, pool)
    if producer is None:
        return NO_ID
    return Store(
        current.initialised(
            producer,
            last_producer_epoch=NO_EPOCH if expected is None else current.producer_epoch,
            timeout_ms=request.timeout_ms,
            now_ms=now_ms,
        )
    )


def _bumped(current: TransactionMetadata, pool: ProducerIdPool) -> ProducerIdAndEpoch | None:
    if not current.is_exhausted:
        return ProducerIdAndEpoch(current.producer_id, current.producer_epoch + 1)
    producer_id = pool.take()
    return None if producer_id is None else ProducerIdAndEpoch(producer_id, 0)


def abort_by_coordinator(
    current: TransactionMetadata, pool: ProducerIdPool, now_ms: int, *, last_producer_epoch: int
) -> TransactionMetadata | None:
    """Aborts an open transaction and ends its epoch. Returns None if a new producer id is needed and none is available.

    `last_producer_epoch` is the transaction's epoch if its producer may continue, otherwise -1."""
    assert current.state is TxnState.ONGOING, current
    return ended_with_epoch(current, pool, now_ms, committed=False, last_producer_epoch=last_producer_epoch)


def ended_with_epoch(
    current: TransactionMetadata, pool: ProducerIdPool, now_ms: int, *, committed: bool, last_producer_epoch: int
) -> TransactionMetadata | None:
    """Returns the transaction with its outcome, in an epoch that ends with it. Returns None if a new producer id is
    needed and none is available."""
    next_producer_id = pool.take() if current.is_exhausted else NO_PRODUCER_ID
    if next_producer_id is None:
        return None
    return current.ending_epoch(
        committed=committed,
        now_ms=now_ms,
        last_producer_epoch=last_producer_epoch,
        next_producer_id=next_producer_id,
    )


def add_partitions(
    requests: tuple[AddPartitions, ...], current: TransactionMetadata | None, now_ms: int
) -> Store | AnswerNow | RetryAfterWrite:
    """Decides about AddPartitions requests of one producer together."""
    if current is None:
        return AnswerNow(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if requests[0].producer != current.producer:
        return AnswerNow(refusal(requests[0].producer, current))
    if current.state.is_decided:
        return RetryAfterWrite()
    if current.is_prepared:
        return AnswerNow(ErrorCode.INVALID_TXN_STATE)
    partitions = frozenset().union(*(request.partitions for request in requests))
    if current.state is TxnState.ONGOING and partitions <= current.partitions:
        return AnswerNow()
    return Store(current.adding(partitions, now_ms))


def verify_partitions(
    request: VerifyPartitions, current: TransactionMetadata | None
) -> tuple[ErrorCode, tuple[ErrorCode, ...]]:
    """Returns the error for the whole request, and the errors by partition."""
    if current is None:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING, ()
    if request.producer != current.producer:
        return refusal(request.producer, current), ()
    if current.state.is_decided:
        return ErrorCode.CONCURRENT_TRANSACTIONS, ()
    return ErrorCode.NONE, tuple(
        ErrorCode.NONE if partition in current.partitions else ErrorCode.TRANSACTION_ABORTABLE
        for partition in request.partitions
    )


def refusal(producer: ProducerIdAndEpoch, current: TransactionMetadata) -> ErrorCode:
    """Returns the error for a producer that is not the current one."""
    if current.state in _ABORTED and current.was_last(producer):
        return ErrorCode.TRANSACTION_ABORTABLE
    if producer.producer_id != current.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return ErrorCode.PRODUCER_FENCED


def end_txn(
    request: EndTxn, current: TransactionMetadata | None, pool: ProducerIdPool, now_ms: int
) -> Store | AnswerNow | RetryAfterWrite:
    """Decides about a producer's commit or abort. An AnswerNow without an error gives it `current.producer`."""
    if current is None:
        return AnswerNow(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if request.bump_epoch and current.was_last(request.producer):
        return _end_again(request, current)
    if request.producer != current.producer:
        # Kafka answers EndTxn with TRANSACTION_ABORTABLE only in the versions that bump the epoch.
        return AnswerNow(refusal(request.producer, current) if request.bump_epoch else _fenced(request, current))
    if current.state.is_decided:
        return _end_decided(request, current)
    if current.state is TxnState.ONGOING:
        return _end_ongoing(request, current, pool, now_ms)
    return _end_nothing(request, current, pool, now_ms)


def _end_again(request: EndTxn, current: TransactionMetadata) -> AnswerNow:
    """Answers an EndTxn whose epoch has ended already, with the requested outcome or with the other one."""
    if current.state is TxnState.EMPTY or current.state is TxnState.ONGOING:
        return AnswerNow(ErrorCode.PRODUCER_FENCED)
    if _has_that_outcome(request, current):
        return AnswerNow()
    return AnswerNow(ErrorCode.TRANSACTION_ABORTABLE if request.committed else ErrorCode.INVALID_TXN_STATE)


def _has_that_outcome(request: EndTxn, current: TransactionMetadata) -> bool:
    return request.committed == (current.state in (TxnState.PREPARE_COMMIT, TxnState.COMPLETE_COMMIT))


def _fenced(request: EndTxn, current: TransactionMetadata) -> ErrorCode:
    if request.producer.producer_id != current.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return ErrorCode.PRODUCER_FENCED


def _end_decided(request: EndTxn, current: TransactionMetadata) -> AnswerNow | RetryAfterWrite:
    if request.bump_epoch:
        # The decided transaction has the previous epoch. The request ends the next transaction, which has written
        # nothing yet.
        return RetryAfterWrite()
    return AnswerNow(ErrorCode.NONE if _has_that_outcome(request, current) else ErrorCode.INVALID_TXN_STATE)


def _end_ongoing(request: EndTxn, current: TransactionMetadata, pool: ProducerIdPool, now_ms: int) -> Store | AnswerNow:
    if request.committed and ledger_of(request.transactional_id) is not None:
        # The ledger commits this transaction, together with the other parts of the batch.
        return AnswerNow(ErrorCode.INVALID_TXN_STATE)
    if not request.bump_epoch:
        return Store(current.ending(committed=request.committed, now_ms=now_ms))
    return _end_epoch(request, current, pool, now_ms)


def _end_nothing(request: EndTxn, current: TransactionMetadata, pool: ProducerIdPool, now_ms: int) -> Store | AnswerNow:
    if request.bump_epoch:
        # A write of this epoch may still be on its way to a partition, so an abort must end the epoch.
        if request.committed:
            return AnswerNow(ErrorCode.INVALID_TXN_STATE)
        return _end_epoch(request, current, pool, now_ms)
    if current.state is TxnState.EMPTY or not _has_that_outcome(request, current):
        return AnswerNow(ErrorCode.INVALID_TXN_STATE)
    return AnswerNow()


def _end_epoch(request: EndTxn, current: TransactionMetadata, pool: ProducerIdPool, now_ms: int) -> Store | AnswerNow:
    value = ended_with_epoch(
        current,
        pool,
        now_ms,
        committed=request.committed,
        last_producer_epoch=current.producer_epoch,
    )
    return NO_ID if value is None else Store(value)
