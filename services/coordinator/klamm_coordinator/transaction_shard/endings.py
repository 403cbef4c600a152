"""The coordinator's own work, which no request asks for: it ends transactions and deletes transactional ids.

state of the id    what the coordinator does
decided            sends markers until every partition has one, then stores that the transaction is complete
open for too long  stores an abort
unused             stores a tombstone
"""

from __future__ import annotations

from dataclasses import dataclass

from klamm.errors import ErrorCode
from klamm_coordinator.ledger.ledgers import Ledgers
from klamm_coordinator.transaction import decisions
from klamm_coordinator.transaction.messages import MarkersWritten, SendMarkers
from klamm_coordinator.transaction.metadata import ProducerIdAndEpoch, TransactionMetadata
from klamm_coordinator.transaction.producer_ids import ProducerIdPool
from klamm_coordinator.transaction.records import TransactionRecord
from klamm_coordinator.transaction.states import TxnState
from klamm_coordinator.transaction.transactional_ids import TransactionalIds
from klamm_coordinator.transaction_shard.transaction_context import TransactionContext


@dataclass(frozen=True, slots=True)
class CompletionTimer:
    """Due when the coordinator has to retry to store that a transaction is complete."""

    transactional_id: str


@dataclass(frozen=True, slots=True)
class AbortTimer:
    """Due when the coordinator has to look for transactions that have been open for too long."""


@dataclass(frozen=True, slots=True)
class IdExpiryTimer:
    """Fires when unused transactional ids are to be deleted."""


class TransactionEndings:
    """Ends the transactions of one shard."""

    def __init__(self, ids: TransactionalIds, ledgers: Ledgers, pool: ProducerIdPool) -> None:
        self._ids = ids
        self._ledgers = ledgers
        self._pool = pool

    def start(self, context: TransactionContext) -> None:
        """Sends the markers of transactions that were decided before, again, after the shard was loaded."""
        for transactional_id, value in sorted(self._ids.values.items()):
            if value.state.is_decided:
                self.order_markers(transactional_id, value, context)
        context.schedule(AbortTimer(), context.settings.abort_check_interval_ms)
        context.schedule(IdExpiryTimer(), context.settings.expiration_check_interval_ms)

    def on_stored(self, transactional_id: str, value: TransactionMetadata | None, context: TransactionContext) -> None:
        """Sends markers to the partitions if a durable record decides a transaction."""
        if value is not None and value.state.is_decided:
            self.order_markers(transactional_id, value, context)

    def on_not_stored(self, transactional_id: str, broker_error: ErrorCode, context: TransactionContext) -> None:
        """Handles the failed append of a record. If the record was to complete a transaction, the coordinator retries
        later."""
        context.note(f"could not append a record, transactional_id={transactional_id} error={broker_error.name}")
        if self._ids.is_decided(transactional_id):
            context.schedule(CompletionTimer(transactional_id), context.settings.completion_retry_ms)

    def order_markers(self, transactional_id: str, value: TransactionMetadata, context: TransactionContext) -> None:
        """Orders the markers for the partitions of a decided transaction. Without partitions, completes the transaction
        at once."""
        if not value.partitions:
            self.complete(transactional_id, context)
            return
        context.order(
            SendMarkers(
                transactional_id=transactional_id,
                marker=ProducerIdAndEpoch(value.producer_id, value.producer_epoch),
                committed=value.state is TxnState.PREPARE_COMMIT,
                transaction_version=value.transaction_version,
                partitions=value.partitions,
            )
        )

    def on_markers_written(self, event: MarkersWritten, context: TransactionContext) -> None:
        """Completes the transaction, after all partitions got its marker. Ignores the markers of an earlier
        transaction."""
        value = self._ids.values.get(event.transactional_id)
        if value is not None and event.marker == (value.producer_id, value.producer_epoch):
            self.complete(event.transactional_id, context)

    def complete(self, transactional_id: str, context: TransactionContext) -> None:
        """Stores that a decided transaction is complete, unless a record of it is being appended already."""
        value = self._ids.values.get(transactional_id)
        if value is not None and value.state.is_decided and not self._ids.is_changing(transactional_id):
            context.append((TransactionRecord(transactional_id, value.completed(context.now.wall_ms)),))

    def abort_timed_out(self, context: TransactionContext) -> None:
        """Ends transactions that have been open for longer than their transaction.timeout.ms."""
        now_ms = context.now.wall_ms
        for transactional_id in sorted(self._ids.open):
            value = self._ids.values[transactional_id]
            if now_ms < _times_out_ms(value, context) or self.is_busy(transactional_id):
                continue
            aborted = decisions.abort_by_coordinator(
                value, self._pool, now_ms, last_producer_epoch=value.producer_epoch
            )
            if aborted is None:
                context.note(
                    f"postponed an abort, because no producer id is available, transactional_id={transactional_id}"
                )
            else:
                context.note(
                    f"aborted a transaction that timed out, transactional_id={transactional_id}"
                    f" prepared={value.is_prepared}"
                )
                context.append((TransactionRecord(transactional_id, aborted),))
        context.schedule(AbortTimer(), context.settings.abort_check_interval_ms)

    def expire(self, context: TransactionContext) -> None:
        """Deletes transactional ids that were not used for transactional.id.expiration.ms."""
        older_than_ms = context.now.wall_ms - context.settings.id_expiration_ms
        for transactional_id, value in sorted(self._ids.values.items()):
            is_unused = value.state.is_idle and value.last_update_ms <= older_than_ms
            if is_unused and not self.is_busy(transactional_id):
                context.note(f"transactional_id={transactional_id} expired")
                context.append((TransactionRecord(transactional_id, None),))
        context.schedule(IdExpiryTimer(), context.settings.expiration_check_interval_ms)

    def is_busy(self, transactional_id: str) -> bool:
        """Returns True if a change of the transactional id has to wait for another change."""
        return (
            self._ids.is_changing(transactional_id)
            or self._ids.is_decided(transactional_id)
            or self._ledgers.holds(transactional_id)
        )


def _times_out_ms(value: TransactionMetadata, context: TransactionContext) -> int:
    if value.is_prepared:
        return value.prepared_ms + context.settings.prepared_timeout_ms
    return value.start_ms + value.timeout_ms
