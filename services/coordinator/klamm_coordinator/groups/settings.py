"""The settings of the rules of groups."""

from __future__ import annotations

from dataclasses import dataclass

from klamm.setting import INT_MAX, Validator, integer, long, one_of, text, text_list
from klamm_coordinator.runtime.settings import MINUTE_MS, ShardSettings

EARLIEST, CLIENT = "earliest", "client"
"""The values of `group.new.partition.offset.reset`."""
MIGRATION_POLICIES = ("disabled", "upgrade", "downgrade", "bidirectional")
_MIGRATION_POLICY = Validator(
    expected=f"one of {', '.join(MIGRATION_POLICIES)}, in upper or lower case",
    accepts=lambda value: value.lower() in MIGRATION_POLICIES,
)


@dataclass(frozen=True, kw_only=True)
class GroupSettings(ShardSettings):
    """The settings of a shard of groups."""

    session_timeout_min_ms: int = integer(
        6_000,
        at_least=1,
        doc="The shortest session timeout that a member may ask for.",
        name="group.min.session.timeout.ms",
    )
    session_timeout_max_ms: int = integer(
        1_800_000,
        at_least=1,
        doc="The longest session timeout that a member may ask for.",
        name="group.max.session.timeout.ms",
    )
    initial_rebalance_delay_ms: int = integer(
        3_000,
        at_least=0,
        doc="How long a group that was empty waits for more members before its first rebalance.",
        name="group.initial.rebalance.delay.ms",
    )
    new_member_join_timeout_ms: int = 5 * MINUTE_MS
    """The session timeout of a new member while its first JoinGroup is parked, in ms (a constant in Kafka)."""
    group_size_max: int = integer(
        2**31 - 1, at_least=1, doc="The most members that a group may have.", name="group.max.size"
    )
    group_count_max: int = integer(
        100_000,
        at_least=1,
        doc="The most groups per partition of __consumer_offsets. The coordinator rejects further"
        " groups with GROUP_MAX_SIZE_REACHED.",
        name="group.count.max",
    )
    pending_members_max: int = integer(
        10_000,
        at_least=1,
        doc="The most member ids that a group has given to members that have not joined yet.",
        name="group.pending.members.max",
    )
    consumer_session_timeout_ms: int = integer(
        45_000,
        at_least=1,
        doc="The coordinator removes a member of the consumer protocol (KIP-848) that sends no"
        " heartbeat for this long.",
        name="group.consumer.session.timeout.ms",
    )
    consumer_heartbeat_interval_ms: int = integer(
        5_000,
        at_least=1,
        doc="How often members of the consumer protocol (KIP-848) send a heartbeat. The coordinator"
        " tells them this value.",
        name="group.consumer.heartbeat.interval.ms",
    )
    consumer_size_max: int = integer(
        2**31 - 1,
        at_least=1,
        doc="The most members that a group of the consumer protocol (KIP-848) may have.",
        name="group.consumer.max.size",
    )
    consumer_assignors: tuple[str, ...] = text_list(
        ("uniform", "range"),
        doc="The assignors that members of the consumer protocol (KIP-848) may select. The first one is the default.",
        name="group.consumer.assignors",
    )
    consumer_migration_policy: str = text(
        "bidirectional",
        valid=_MIGRATION_POLICY,
        doc="Which groups the coordinator converts while they have members. upgrade: a classic group, when a member"
        " of the consumer protocol (KIP-848) joins it. downgrade: a consumer group, when the last member of the"
        " consumer protocol is gone and members of the classic protocol remain. bidirectional: both.",
        name="group.consumer.migration.policy",
    )
    new_partition_offset_reset: str = text(
        EARLIEST,
        valid=one_of(EARLIEST, CLIENT),
        doc="Where a group without a committed offset begins in a partition that was created after the group had begun"
        " to read the topic. earliest: with the first record, for every client. client: where auto.offset.reset of the"
        " client says, as in Kafka. With latest, records are then skipped whenever a topic grows.",
        name="group.new.partition.offset.reset",
    )
    lag_interval_ms: int = long(
        15_000,
        at_least=1_000,
        doc="How often the coordinator looks at how far each group is behind, for the metrics, the rates and the counts"
        " of lost records. With very many offsets, it looks less often.",
        name="group.lag.interval.ms",
    )
    member_metadata_bytes_max: int = integer(
        262_144,
        at_least=1,
        doc="The most bytes of names and metadata of all protocols of one member. The coordinator"
        " rejects more with INVALID_REQUEST.",
        name="group.member.metadata.max.bytes",
    )
    group_metadata_max_bytes: int | None = long(
        None,
        at_least=1,
        doc="How much memory all groups of the coordinator may take, with the metadata of their members and their"
        " offsets. One user may take two thirds of it for new members, and less while others use it. The"
        " coordinator rejects further members with GROUP_MAX_SIZE_REACHED, and further offsets with"
        " INVALID_COMMIT_OFFSET_SIZE.",
        shown="a quarter of the memory that the process may use",
    )
    offset_metadata_bytes_max: int = integer(
        4_096,
        at_least=0,
        at_most=32_767,
        doc="The longest metadata text that may be committed with an offset.",
        name="offset.metadata.max.bytes",
    )
    offsets_retention_minutes: int = integer(
        7 * 24 * 60,
        at_least=1,
        at_most=INT_MAX,
        doc="How long offsets are kept after the last member has left their group. Without members, the"
        " time counts from the commit of the offset.",
    )
    offsets_retention_check_interval_ms: int = long(
        10 * MINUTE_MS,
        at_least=1,
        doc="How often the coordinator looks for expired offsets.",
        name="offsets.retention.check.interval.ms",
    )
    commit_timeout_ms: int = integer(
        5_000,
        at_least=1,
        doc="How long a commit may wait for the in-sync replicas. After that, the client must retry it.",
        name="offsets.commit.timeout.ms",
    )

    @property
    def may_upgrade(self) -> bool:
        """True if a classic group with members may become a consumer group."""
        return self.consumer_migration_policy.lower() in ("upgrade", "bidirectional")

    @property
    def may_downgrade(self) -> bool:
        """True if a consumer group with members may become a classic group."""
        return self.consumer_migration_policy.lower() in ("downgrade", "bidirectional")

    @property
    def offsets_retention_ms(self) -> int:
        return self.offsets_retention_minutes * MINUTE_MS
