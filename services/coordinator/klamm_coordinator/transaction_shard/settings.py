"""The settings of the rules of transactions."""

from __future__ import annotations

from dataclasses import dataclass

from klamm.setting import integer, long
from klamm_coordinator.runtime.settings import MINUTE_MS, ShardSettings


@dataclass(frozen=True, kw_only=True)
class TransactionSettings(ShardSettings):
    """The settings of a shard of transactions."""

    timeout_max_ms: int = integer(
        15 * MINUTE_MS,
        at_least=1,
        doc="The longest transaction.timeout.ms that a producer may ask for.",
        name="transaction.max.timeout.ms",
    )
    abort_check_interval_ms: int = integer(
        10_000,
        at_least=1,
        doc="How often the coordinator looks for transactions that have been open for longer than their"
        " transaction.timeout.ms.",
        name="transaction.abort.timed.out.transaction.cleanup.interval.ms",
    )
    prepared_timeout_ms: int = integer(
        15 * MINUTE_MS,
        at_least=1,
        doc="The coordinator aborts a prepared transaction if its batch ledger does not decide within this time.",
        name="transaction.prepared.timeout.ms",
    )
    id_expiration_ms: int = integer(
        7 * 24 * 60 * MINUTE_MS,
        at_least=1,
        doc="The coordinator forgets a transactional id this long after its last transaction.",
        name="transactional.id.expiration.ms",
    )
    expiration_check_interval_ms: int = integer(
        60 * MINUTE_MS,
        at_least=1,
        doc="How often the coordinator looks for expired transactional ids.",
        name="transaction.remove.expired.transaction.cleanup.interval.ms",
    )
    id_count_max: int = integer(
        100_000,
        at_least=1,
        doc="The most transactional ids per partition of __transaction_state. The coordinator rejects"
        " further ids with POLICY_VIOLATION.",
        name="transactional.id.count.max",
    )
    transactional_id_metadata_max_bytes: int | None = long(
        None,
        at_least=1,
        doc="How much memory all transactional ids of the coordinator may take, with the partitions of open"
        " transactions. One user may take two thirds of it for new ids, and less while others use it. The coordinator"
        " rejects further ids with POLICY_VIOLATION, and further partitions with TRANSACTION_ABORTABLE.",
        shown="an eighth of the memory that the process may use",
    )
    waiting_requests_max: int = 1_000
    """The most requests of one transactional id or ledger that may wait for a change under way. Further requests get
    CONCURRENT_TRANSACTIONS."""
    wait_max_ms: int = 1_000
    """How long a request may wait for a change under way, in ms. It then gets CONCURRENT_TRANSACTIONS, as in Kafka at
    once."""
    append_timeout_ms: int = 5_000
    """How long an append may take, in ms. After that, its requests get an error with which the clients retry."""
    completion_retry_ms: int = 1_000
    """How long the coordinator waits before it retries to store the end of a transaction, in ms."""
