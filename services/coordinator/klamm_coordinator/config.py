"""The coordinator's configuration: Kafka's names and defaults, and a few bounds of our own."""

from __future__ import annotations

from dataclasses import dataclass

from klamm.errors import ConfigError
from klamm_coordinator.consumer_group.assignors import ASSIGNORS
from klamm_coordinator.settings import MINUTE_MS, GroupSettings, TransactionSettings
from klamm_server.config import setting
from klamm_server.config_def import ConfigDef, ConfigType, ConfigValue, Validator, at_least, between, list_of
from klamm_server.member_config import MemberConfig

_DEFAULTS = GroupSettings()
_TRANSACTIONS = TransactionSettings()
_RETENTION_MINUTES_MAX = 2**31 - 1


def _config(
    name: str, default: ConfigValue, documentation: str, validator: Validator, *, is_long: bool = False
) -> ConfigDef:
    return ConfigDef(
        name=name,
        type=ConfigType.LONG if is_long else ConfigType.INT,
        default=default,
        documentation=documentation,
        validator=validator,
    )


COORDINATOR_CONFIGS: dict[str, ConfigDef] = {
    definition.name: definition
    for definition in (
        _config(
            "group.min.session.timeout.ms",
            _DEFAULTS.session_timeout_min_ms,
            "The shortest session timeout a member may ask for.",
            at_least(1),
        ),
        _config(
            "group.max.session.timeout.ms",
            _DEFAULTS.session_timeout_max_ms,
            "The longest session timeout a member may ask for.",
            at_least(1),
        ),
        _config(
            "group.initial.rebalance.delay.ms",
            _DEFAULTS.initial_rebalance_delay_ms,
            "How long a group that was empty waits for more members before its first rebalance.",
            at_least(0),
        ),
        _config(
            "group.max.size",
            _DEFAULTS.group_size_max,
            "Members a group may have.",
            at_least(1),
        ),
        _config(
            "group.consumer.session.timeout.ms",
            _DEFAULTS.consumer_session_timeout_ms,
            "How long a member of the new protocol (KIP-848) may be silent.",
            at_least(1),
        ),
        _config(
            "group.consumer.min.session.timeout.ms",
            45_000,
            "The least that group.consumer.session.timeout.ms may be.",
            at_least(1),
        ),
        _config(
            "group.consumer.max.session.timeout.ms",
            60_000,
            "The most that group.consumer.session.timeout.ms may be.",
            at_least(1),
        ),
        _config(
            "group.consumer.heartbeat.interval.ms",
            _DEFAULTS.consumer_heartbeat_interval_ms,
            "How often members of the new protocol are told to heartbeat.",
            at_least(1),
        ),
        _config(
            "group.consumer.min.heartbeat.interval.ms",
            5_000,
            "The least that group.consumer.heartbeat.interval.ms may be.",
            at_least(1),
        ),
        _config(
            "group.consumer.max.heartbeat.interval.ms",
            15_000,
            "The most that group.consumer.heartbeat.interval.ms may be.",
            at_least(1),
        ),
        _config(
            "group.consumer.max.size",
            _DEFAULTS.consumer_size_max,
            "Members a group of the new protocol may have.",
            at_least(1),
        ),
        ConfigDef(
            name="group.consumer.assignors",
            type=ConfigType.LIST,
            default=_DEFAULTS.consumer_assignors,
            documentation="The assignors that members of the new protocol may ask for; the first is the default.",
            validator=list_of(*ASSIGNORS),
        ),
        _config(
            "group.count.max",
            _DEFAULTS.group_count_max,
            "Groups per partition of __consumer_offsets; one more is refused with GROUP_MAX_SIZE_REACHED.",
            at_least(1),
        ),
        _config(
            "group.pending.members.max",
            _DEFAULTS.pending_members_max,
            "Member ids a group may have given out whose owners have not joined yet.",
            at_least(1),
        ),
        _config(
            "group.member.metadata.max.bytes",
            _DEFAULTS.member_metadata_bytes_max,
            "Names and metadata of all protocols of one member; more is refused with INVALID_REQUEST.",
            at_least(1),
        ),
        _config(
            "offset.metadata.max.bytes",
            _DEFAULTS.offset_metadata_bytes_max,
            "The longest note that may be committed with an offset.",
            # Its length is an int16 in the record.
            between(0, 2**15 - 1),
        ),
        _config(
            "offsets.retention.minutes",
            _DEFAULTS.offsets_retention_ms // MINUTE_MS,
            "How long offsets outlive the last member of their group, or, without members, their commit.",
            between(1, _RETENTION_MINUTES_MAX),
        ),
        _config(
            "offsets.retention.check.interval.ms",
            _DEFAULTS.offsets_retention_check_interval_ms,
            "How often expired offsets are looked for.",
            at_least(1),
            is_long=True,
        ),
        _config(
            "offsets.commit.timeout.ms",
            _DEFAULTS.commit_timeout_ms,
            "How long a commit may wait for the in-sync replicas before its sender is told to try again.",
            at_least(1),
        ),
        _config(
            "offsets.load.buffer.size",
            5 * 1024**2,
            "Bytes read at once from a partition of __consumer_offsets that is being loaded.",
            at_least(1),
        ),
        _config(
            "transaction.max.timeout.ms",
            _TRANSACTIONS.timeout_max_ms,
            "The longest transaction.timeout.ms a producer may ask for.",
            at_least(1),
        ),
        _config(
            "transaction.abort.timed.out.transaction.cleanup.interval.ms",
            _TRANSACTIONS.abort_check_interval_ms,
            "How often transactions are looked for that have been open for longer than their transaction.timeout.ms.",
            at_least(1),
        ),
        _config(
            "transaction.prepared.timeout.ms",
            _TRANSACTIONS.prepared_timeout_ms,
            "How long a prepared transaction waits for the decision of its batch ledger before it is aborted.",
            at_least(1),
        ),
        _config(
            "transactional.id.expiration.ms",
            _TRANSACTIONS.id_expiration_ms,
            "How long a transactional id is remembered after its last transaction.",
            at_least(1),
        ),
        _config(
            "transaction.remove.expired.transaction.cleanup.interval.ms",
            _TRANSACTIONS.expiration_check_interval_ms,
            "How often expired transactional ids are looked for.",
            at_least(1),
        ),
        _config(
            "transactional.id.count.max",
            _TRANSACTIONS.id_count_max,
            "Transactional ids per partition of __transaction_state; one more is refused with POLICY_VIOLATION.",
            at_least(1),
        ),
        _config(
            "transaction.state.log.load.buffer.size",
            5 * 1024**2,
            "Bytes read at once from a partition of __transaction_state that is being loaded.",
            at_least(1),
        ),
        _config(
            "coordinator.append.max.bytes",
            1_000_000,
            "Bytes of writes that are appended as one batch; less than max.message.bytes of __consumer_offsets.",
            at_least(1),
        ),
        _config(
            "coordinator.pending.writes.max",
            _DEFAULTS.pending_writes_max,
            "Writes per partition that wait for their append; one more is refused with COORDINATOR_NOT_AVAILABLE.",
            at_least(1),
        ),
    )
}


DEFAULT_PORT = 9095
_LISTENERS = ConfigDef(
    name="listeners",
    type=ConfigType.LIST,
    default=(f"GRPC://localhost:{DEFAULT_PORT}",),
    documentation="Where the coordinator listens, as NAME://host:port; an empty host is every interface.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorConfig(MemberConfig):
    """See `klamm_server.config`: `load(CoordinatorConfig, properties)` makes one."""

    listeners: tuple[str, ...] = setting(_LISTENERS)
    group_min_session_timeout_ms: int = setting(COORDINATOR_CONFIGS["group.min.session.timeout.ms"])
    group_max_session_timeout_ms: int = setting(COORDINATOR_CONFIGS["group.max.session.timeout.ms"])
    group_initial_rebalance_delay_ms: int = setting(COORDINATOR_CONFIGS["group.initial.rebalance.delay.ms"])
    group_max_size: int = setting(COORDINATOR_CONFIGS["group.max.size"])
    group_consumer_session_timeout_ms: int = setting(COORDINATOR_CONFIGS["group.consumer.session.timeout.ms"])
    group_consumer_min_session_timeout_ms: int = setting(COORDINATOR_CONFIGS["group.consumer.min.session.timeout.ms"])
    group_consumer_max_session_timeout_ms: int = setting(COORDINATOR_CONFIGS["group.consumer.max.session.timeout.ms"])
    group_consumer_heartbeat_interval_ms: int = setting(COORDINATOR_CONFIGS["group.consumer.heartbeat.interval.ms"])
    group_consumer_min_heartbeat_interval_ms: int = setting(
        COORDINATOR_CONFIGS["group.consumer.min.heartbeat.interval.ms"]
    )
    group_consumer_max_heartbeat_interval_ms: int = setting(
        COORDINATOR_CONFIGS["group.consumer.max.heartbeat.interval.ms"]
    )
    group_consumer_max_size: int = setting(COORDINATOR_CONFIGS["group.consumer.max.size"])
    group_consumer_assignors: tuple[str, ...] = setting(COORDINATOR_CONFIGS["group.consumer.assignors"])
    group_count_max: int = setting(COORDINATOR_CONFIGS["group.count.max"])
    group_pending_members_max: int = setting(COORDINATOR_CONFIGS["group.pending.members.max"])
    group_member_metadata_max_bytes: int = setting(COORDINATOR_CONFIGS["group.member.metadata.max.bytes"])
    offset_metadata_max_bytes: int = setting(COORDINATOR_CONFIGS["offset.metadata.max.bytes"])
    offsets_retention_minutes: int = setting(COORDINATOR_CONFIGS["offsets.retention.minutes"])
    offsets_retention_check_interval_ms: int = setting(COORDINATOR_CONFIGS["offsets.retention.check.interval.ms"])
    offsets_commit_timeout_ms: int = setting(COORDINATOR_CONFIGS["offsets.commit.timeout.ms"])
    offsets_load_buffer_size: int = setting(COORDINATOR_CONFIGS["offsets.load.buffer.size"])
    transaction_max_timeout_ms: int = setting(COORDINATOR_CONFIGS["transaction.max.timeout.ms"])
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = setting(
        COORDINATOR_CONFIGS["transaction.abort.timed.out.transaction.cleanup.interval.ms"]
    )
    transaction_prepared_timeout_ms: int = setting(COORDINATOR_CONFIGS["transaction.prepared.timeout.ms"])
    transactional_id_expiration_ms: int = setting(COORDINATOR_CONFIGS["transactional.id.expiration.ms"])
    transaction_remove_expired_transaction_cleanup_interval_ms: int = setting(
        COORDINATOR_CONFIGS["transaction.remove.expired.transaction.cleanup.interval.ms"]
    )
    transactional_id_count_max: int = setting(COORDINATOR_CONFIGS["transactional.id.count.max"])
    transaction_state_log_load_buffer_size: int = setting(COORDINATOR_CONFIGS["transaction.state.log.load.buffer.size"])
    coordinator_append_max_bytes: int = setting(COORDINATOR_CONFIGS["coordinator.append.max.bytes"])
    coordinator_pending_writes_max: int = setting(COORDINATOR_CONFIGS["coordinator.pending.writes.max"])

    def validate(self) -> None:
        # Not super(): a slotted dataclass is not the class that its body closes over.
        MemberConfig.validate(self)
        if self.group_min_session_timeout_ms > self.group_max_session_timeout_ms:
            raise ConfigError(
                f"group.min.session.timeout.ms={self.group_min_session_timeout_ms}: expected at most"
                f" group.max.session.timeout.ms={self.group_max_session_timeout_ms}"
            )
        _check_within(
            "group.consumer.{}session.timeout.ms",
            self.group_consumer_min_session_timeout_ms,
            self.group_consumer_session_timeout_ms,
            self.group_consumer_max_session_timeout_ms,
        )
        _check_within(
            "group.consumer.{}heartbeat.interval.ms",
            self.group_consumer_min_heartbeat_interval_ms,
            self.group_consumer_heartbeat_interval_ms,
            self.group_consumer_max_heartbeat_interval_ms,
        )
        if self.group_consumer_heartbeat_interval_ms >= self.group_consumer_session_timeout_ms:
            raise ConfigError(
                f"group.consumer.heartbeat.interval.ms={self.group_consumer_heartbeat_interval_ms}: expected less than"
                f" group.consumer.session.timeout.ms={self.group_consumer_session_timeout_ms}"
            )
        if not self.group_consumer_assignors:
            raise ConfigError(f"group.consumer.assignors is empty, expected some of {', '.join(ASSIGNORS)}")

    @property
    def groups(self) -> GroupSettings:
        """What the core of a shard of groups obeys."""
        return GroupSettings(
            session_timeout_min_ms=self.group_min_session_timeout_ms,
            session_timeout_max_ms=self.group_max_session_timeout_ms,
            initial_rebalance_delay_ms=self.group_initial_rebalance_delay_ms,
            group_size_max=self.group_max_size,
            group_count_max=self.group_count_max,
            consumer_session_timeout_ms=self.group_consumer_session_timeout_ms,
            consumer_heartbeat_interval_ms=self.group_consumer_heartbeat_interval_ms,
            consumer_size_max=self.group_consumer_max_size,
            consumer_assignors=self.group_consumer_assignors,
            pending_members_max=self.group_pending_members_max,
            member_metadata_bytes_max=self.group_member_metadata_max_bytes,
            offset_metadata_bytes_max=self.offset_metadata_max_bytes,
            offsets_retention_ms=self.offsets_retention_minutes * MINUTE_MS,
            offsets_retention_check_interval_ms=self.offsets_retention_check_interval_ms,
            commit_timeout_ms=self.offsets_commit_timeout_ms,
            pending_writes_max=self.coordinator_pending_writes_max,
        )

    @property
    def transactions(self) -> TransactionSettings:
        """What the core of a shard of transactions obeys."""
        return TransactionSettings(
            timeout_max_ms=self.transaction_max_timeout_ms,
            abort_check_interval_ms=self.transaction_abort_timed_out_transaction_cleanup_interval_ms,
            prepared_timeout_ms=self.transaction_prepared_timeout_ms,
            id_expiration_ms=self.transactional_id_expiration_ms,
            expiration_check_interval_ms=self.transaction_remove_expired_transaction_cleanup_interval_ms,
            id_count_max=self.transactional_id_count_max,
            pending_writes_max=self.coordinator_pending_writes_max,
        )


def _check_within(name: str, least: int, value: int, most: int) -> None:
    if not least <= value <= most:
        raise ConfigError(
            f"{name.format('')}={value}: expected {least} ({name.format('min.')}) to {most} ({name.format('max.')})"
        )
