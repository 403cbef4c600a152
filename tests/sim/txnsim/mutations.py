"""Known mistakes of transaction protocols, planted to prove that the simulation would see them. Only tests ever do."""

from __future__ import annotations

from typing import Any

from klamm.errors import ErrorCode
from klamm_broker.log.producers.producer_state import ProducerStates
from klamm_broker.log.producers.verification import VerificationGuard, Verifications
from klamm_coordinator.transaction import decisions
from klamm_coordinator.transaction.decisions import AnswerNow, RetryAfterWrite, Store
from klamm_coordinator.transaction.messages import AddPartitions, AddReply, EndTxn, SendMarkers
from klamm_coordinator.transaction.metadata import ProducerIdAndEpoch, TransactionMetadata
from klamm_coordinator.transaction.producer_ids import ProducerIdPool
from klamm_coordinator.transaction.states import TxnState
from klamm_coordinator.transaction_shard.endings import AbortTimer, TransactionEndings
from klamm_coordinator.transaction_shard.rules import TransactionRules
from klamm_coordinator.transaction_shard.transaction_context import TransactionContext
from tests.sim.kit.mutation import Mutation
from tests.sim.txnsim.state_log import StateLog

_store = TransactionRules._store
_add_partitions = decisions.add_partitions
_end_txn = decisions.end_txn


def _store_and_tell(
    self: TransactionRules, transactional_id: str, value: TransactionMetadata, replies: Any, context: TransactionContext
) -> None:
    _store(self, transactional_id, value, replies, context)
    if value.state.is_decided and value.partitions:
        context.order(
            SendMarkers(
                transactional_id=transactional_id,
                marker=ProducerIdAndEpoch(value.producer_id, value.producer_epoch),
                committed=value.state is TxnState.PREPARE_COMMIT,
                transaction_version=value.transaction_version,
                partitions=value.partitions,
            )
        )


def _start_silently(self: TransactionEndings, context: TransactionContext) -> None:
    context.schedule(AbortTimer(), context.settings.abort_check_interval_ms)


def _answer_and_store(
    self: TransactionRules, transactional_id: str, value: TransactionMetadata, replies: Any, context: TransactionContext
) -> None:
    early = [(reply_id, reply) for reply_id, reply in replies if isinstance(reply, AddReply)]
    for reply_id, reply in early:
        self._parked.answer(reply_id, reply, context)
    _store(self, transactional_id, value, [reply for reply in replies if reply not in early], context)


def _end_whatever_there_is(
    request: EndTxn, current: TransactionMetadata | None, pool: ProducerIdPool, now_ms: int
) -> Store | AnswerNow | RetryAfterWrite:
    if current is not None and current.state is TxnState.ONGOING:
        request = EndTxn(
            reply_id=request.reply_id,
            transactional_id=request.transactional_id,
            producer=current.producer,
            committed=request.committed,
            bump_epoch=request.bump_epoch,
        )
    return _end_txn(request, current, pool, now_ms)


def _end_in_the_same_epoch(
    current: TransactionMetadata, pool: ProducerIdPool, now_ms: int, *, last_producer_epoch: int
) -> TransactionMetadata | None:
    return current.ending(committed=False, now_ms=now_ms)


def _add_to_anybody(
    requests: tuple[AddPartitions, ...], current: TransactionMetadata | None, now_ms: int
) -> Store | AnswerNow | RetryAfterWrite:
    if current is not None and current.state is not TxnState.ONGOING:
        return _add_partitions(requests, current, now_ms)
    return AnswerNow()


def _no_check(self: Verifications, guard: VerificationGuard, sequence: int) -> None:
    """Accepts the append, whatever happened while the coordinator was asked."""


def _append_of_any_writer(self: StateLog, epoch: int, sequence: int, entries: Any) -> ErrorCode:
    key = (epoch, sequence)
    seen = self.__dict__.setdefault("seen", set())
    if key not in seen:
        seen.add(key)
        self.entries.extend(entries)
    return ErrorCode.NONE


def _complete_at_once(
    self: TransactionEndings, transactional_id: str, value: TransactionMetadata, context: TransactionContext
) -> None:
    _tell(self, transactional_id, value, context)
    if value.partitions:
        self.complete(transactional_id, context)


_tell = TransactionEndings.order_markers


def _older_epochs_write_on(self: ProducerStates, producer_id: int, producer_epoch: int) -> None:
    """Fences no producer."""


MUTATIONS: dict[str, Mutation] = {
    "tell-before-durable": Mutation(
        what="partitions are told an outcome that the log does not have yet",
        known_seed=10,
        changes=((TransactionRules, "_store", _store_and_tell),),
    ),
    "decided-and-forgotten": Mutation(
        what="a new owner does not tell the partitions what was decided before it",
        known_seed=2,
        changes=((TransactionEndings, "start", _start_silently),),
    ),
    "add-before-durable": Mutation(
        what="a partition may write before the log knows that it is part of the transaction",
        known_seed=1,
        changes=((TransactionRules, "_store", _answer_and_store),),
    ),
    "add-without-record": Mutation(
        what="partitions of an open transaction are not stored",
        known_seed=14,
        changes=((decisions, "add_partitions", _add_to_anybody),),
    ),
    "late-end": Mutation(
        what="an end of an earlier transaction ends the one that is open (before KIP-890)",
        known_seed=3,
        changes=((decisions, "end_txn", _end_whatever_there_is),),
    ),
    "time-out-without-bump": Mutation(
        what="a transaction that timed out is aborted in its own epoch, in which its producer writes on (KIP-588)",
        known_seed=3,
        changes=((decisions, "abort_by_coordinator", _end_in_the_same_epoch),),
    ),
    "no-fence-at-partitions": Mutation(
        what="a partition appends what comes after the marker: neither epoch nor guard is looked at (before KIP-890)",
        known_seed=39,
        changes=(
            (ProducerStates, "check_epoch", _older_epochs_write_on),
            (Verifications, "check", _no_check),
        ),
    ),
    "no-writer-fence": Mutation(
        what="brokers take appends of owners of the past",
        known_seed=3,
        changes=((StateLog, "append", _append_of_any_writer),),
    ),
    "complete-before-told": Mutation(
        what="a transaction is complete before its partitions have their markers",
        known_seed=1,
        changes=((TransactionEndings, "order_markers", _complete_at_once),),
    ),
}
