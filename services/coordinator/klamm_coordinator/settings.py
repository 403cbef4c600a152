"""The settings that the pure cores obey; `config.py` fills them from a file under Kafka's names."""

from __future__ import annotations

from dataclasses import dataclass

MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """Kafka's defaults, save where said otherwise."""

    session_timeout_min_ms: int = 6_000
    """group.min.session.timeout.ms"""
    session_timeout_max_ms: int = 1_800_000
    """group.max.session.timeout.ms"""
    initial_rebalance_delay_ms: int = 3_000
    """group.initial.rebalance.delay.ms: how long a group that was empty waits for more members."""
    new_member_join_timeout_ms: int = 5 * MINUTE_MS
    """How long a new member's parked join counts as a sign of life (a constant in Kafka)."""
    group_size_max: int = 2**31 - 1
    """group.max.size"""
    group_count_max: int = 100_000
    """group.count.max: groups per shard. Kafka has no bound; a JoinGroup with a fresh id costs memory here."""
    pending_members_max: int = 10_000
    """group.pending.members.max: ids a group has given out whose owners have not joined yet."""
    consumer_session_timeout_ms: int = 45_000
    """group.consumer.session.timeout.ms: of members of the new protocol (KIP-848), for whom the coordinator decides."""
    consumer_heartbeat_interval_ms: int = 5_000
    """group.consumer.heartbeat.interval.ms: what they are told."""
    consumer_size_max: int = 2**31 - 1
    """group.consumer.max.size"""
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    """group.consumer.assignors: those that members may ask for, the default one first."""
    member_metadata_bytes_max: int = 262_144
    """group.member.metadata.max.bytes: the names and metadata of all protocols of one member together."""
    offset_metadata_bytes_max: int = 4_096
    """offset.metadata.max.bytes, as UTF-8."""
    offsets_retention_ms: int = 7 * 24 * 60 * MINUTE_MS
    """offsets.retention.minutes (KIP-211)."""
    offsets_retention_check_interval_ms: int = 10 * MINUTE_MS
    """offsets.retention.check.interval.ms"""
    commit_timeout_ms: int = 5_000
    """offsets.commit.timeout.ms: how long an append may take before its requester is told to try again."""
    pending_writes_max: int = 10_000
    """coordinator.pending.writes.max: writes of a shard that wait for their append."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSettings:
    """Kafka's defaults, save where said otherwise."""

    timeout_max_ms: int = 15 * MINUTE_MS
    """transaction.max.timeout.ms"""
    abort_check_interval_ms: int = 10_000
    """transaction.abort.timed.out.transaction.cleanup.interval.ms"""
    prepared_timeout_ms: int = 15 * MINUTE_MS
    """transaction.prepared.timeout.ms: how long a prepared transaction waits for its ledger's decision."""
    id_expiration_ms: int = 7 * 24 * 60 * MINUTE_MS
    """transactional.id.expiration.ms"""
    expiration_check_interval_ms: int = 60 * MINUTE_MS
    """transaction.remove.expired.transaction.cleanup.interval.ms"""
    id_count_max: int = 100_000
    """transactional.id.count.max: ids per shard. Kafka has no bound; an InitProducerId with a fresh id costs memory."""
    waiting_requests_max: int = 1_000
    """Requests of one transactional id that wait for what is under way; one more is CONCURRENT_TRANSACTIONS."""
    wait_max_ms: int = 1_000
    """How long such a request waits before it is answered CONCURRENT_TRANSACTIONS, as Kafka answers at once."""
    append_timeout_ms: int = 5_000
    """How long an append may take before its requester is told to try again."""
    completion_retry_ms: int = 1_000
    """After how long the end of a transaction that the log refused is tried again."""
    pending_writes_max: int = 10_000
    """coordinator.pending.writes.max: writes of a shard that wait for their append."""
