"""The settings that a broker understands: Kafka's names and defaults, and the few of our own.

Those that stand in for a topic config (topic_configs.SYNONYMS) are made from it: the defaults of topics are looked up
again whenever the metadata changes. Of the others, those with an update mode change at run time (KIP-226), as in
Kafka; `dynamic_configs` says what is in force. A setting is listed when something acts on it: one that does not work
yet is refused like an unknown name.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from klamm.errors import ConfigError
from klamm.setting import (
    INT_MAX,
    LONG_MAX,
    Setting,
    UpdateMode,
    Validator,
    at_least,
    between,
    boolean,
    definitions,
    double,
    integer,
    list_matching,
    long,
    one_of,
    text,
    text_list,
)
from klamm_server.config.member_config import MemberConfig
from klamm_server.config.topic_configs import DAY_MS, MIB, SYNONYMS, TOPIC_CONFIGS

_UNSET_WHEN_IN_OTHER_UNITS = frozenset(
    {"log.roll.ms", "log.roll.jitter.ms", "log.retention.ms", "log.flush.interval.ms"}
)
"""First synonyms that have a second one: only that one has a default, or it would never be looked at."""


def _default_of_topics(topic_config: str) -> Setting:
    name = SYNONYMS[topic_config][0].name
    definition = TOPIC_CONFIGS[topic_config]
    if name == topic_config:
        return definition
    return definition._replace(
        name=name,
        default=None if name in _UNSET_WHEN_IN_OTHER_UNITS else definition.default,
        synonyms=(),
        read_by="topics",
        documentation=f"For topics that do not set {topic_config}: {definition.documentation}",
    )


_LIMIT_OR_NONE = Validator(
    expected="-1 or at least 1", accepts=lambda value: isinstance(value, int) and (value == -1 or value >= 1)
)

_KAFKA_REPLICA = "org.apache.kafka.common.replica."
_REPLICA_SELECTOR = one_of(
    "RackAwareReplicaSelector",
    f"{_KAFKA_REPLICA}RackAwareReplicaSelector",
    "LeaderSelector",
    f"{_KAFKA_REPLICA}LeaderSelector",
)
"""Kafka loads a class; these two are its own."""


_TOPIC_DEFAULTS: Mapping[str, Setting] = {
    synonyms[0].name: _default_of_topics(name) for name, synonyms in SYNONYMS.items()
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig(MemberConfig):
    """See `klamm_server.config.server_config`: `load(BrokerConfig, properties)` makes one."""

    ALSO_KNOWN: ClassVar[Mapping[str, Setting]] = {**MemberConfig.ALSO_KNOWN, **_TOPIC_DEFAULTS}

    broker_rack: str | None = text(None, doc="Where the broker stands; replicas are spread over racks.")
    replica_selector_class: str | None = text(
        None,
        valid=_REPLICA_SELECTOR,
        doc="Which replica a consumer with a client.rack is told to read from: RackAwareReplicaSelector, one"
        " in its rack; LeaderSelector, or nothing, the leader.",
    )
    # Topics
    num_partitions: int = integer(
        1, at_least=1, doc="Partitions of a topic that is created without saying how many.", read_by="controller"
    )
    default_replication_factor: int = integer(
        1, at_least=1, doc="Replicas of a topic that is created without saying how many.", read_by="controller"
    )
    auto_create_topics_enable: bool = boolean(
        True, doc="Whether a client that asks for an unknown topic by name may have it created."
    )
    delete_topic_enable: bool = boolean(True, doc="Whether topics can be deleted.", read_by="controller")
    offsets_topic_num_partitions: int = integer(
        50, at_least=1, doc="Shards of the consumer groups; must not change once __consumer_offsets exists."
    )
    offsets_topic_replication_factor: int = integer(
        3,
        at_least=1,
        doc="Replicas of __consumer_offsets; it cannot be created while fewer brokers are alive.",
        read_by="controller",
    )
    # The log
    log_dir: tuple[str, ...] = text_list(
        ("klamm-data/broker",),  # Kafka's /tmp/kafka-logs is emptied by a reboot
        doc="The directory of the log when log.dirs is not set.",
    )
    log_dirs: tuple[str, ...] | None = text_list(
        None, doc="The directories of the log; partitions are spread over them."
    )
    log_dirs_lost: tuple[str, ...] = text_list(
        (),
        valid=list_matching("[A-Za-z0-9_-]{22}", "a list of directory ids, as in meta.properties"),
        doc="Ids of directories that will not come back: a new one may take their place, empty.",
    )
    log_retention_minutes: int | None = integer(
        None, valid=_LIMIT_OR_NONE, doc="retention.ms in minutes, for topics, when log.retention.ms is not set."
    )
    log_retention_hours: int = integer(
        168,
        valid=_LIMIT_OR_NONE,
        doc="retention.ms in hours, for topics, when log.retention.minutes is not set either.",
    )
    log_roll_hours: int = integer(168, at_least=1, doc="segment.ms in hours, for topics, when log.roll.ms is not set.")
    log_roll_jitter_hours: int = integer(
        0, at_least=0, doc="segment.jitter.ms in hours, for topics, when log.roll.jitter.ms is not set."
    )
    log_flush_scheduler_interval_ms: int = long(
        LONG_MAX, at_least=0, doc="How often it is checked what flush.ms asks to be fsynced, and its default."
    )
    log_retention_check_interval_ms: int = long(
        300_000, at_least=1, doc="How often it is checked which segments retention drops."
    )
    log_flush_offset_checkpoint_interval_ms: int = integer(
        60_000,
        at_least=0,
        doc="How often the recovery points are written: what lies behind them is not scanned after a crash.",
    )
    num_recovery_threads_per_data_dir: int = integer(
        2,
        at_least=1,
        doc="How many logs of one directory are recovered at the same time.",
        update_mode=UpdateMode.CLUSTER_WIDE,
        takes_effect="when the broker stops; logs are recovered before it knows the metadata, by its file",
    )
    log_open_segments_max: int = integer(
        512, at_least=1, doc="Closed segments that are kept open for reading, over all partitions."
    )
    log_cleaner_enable: bool = boolean(True, doc="Whether topics with cleanup.policy compact are compacted.")
    log_cleaner_threads: int = integer(
        1,
        at_least=1,
        doc="How many logs are compacted at the same time.",
        update_mode=UpdateMode.CLUSTER_WIDE,
        takes_effect="a cleaning under way goes on to its end",
    )
    log_cleaner_dedupe_buffer_size: int = long(
        128 * MIB,
        at_least=MIB,
        doc="Memory for the keys that compactions deal with, of all together; a key takes 176 bytes besides"
        " its own. A log with more new keys is compacted in several rounds.",
        update_mode=UpdateMode.CLUSTER_WIDE,
        takes_effect="from the next cleaning on",
    )
    log_cleaner_io_buffer_load_factor: float = double(
        0.9,
        valid=between(0.01, 1),
        doc="How full the dedupe buffer may get.",
        update_mode=UpdateMode.CLUSTER_WIDE,
        takes_effect="from the next cleaning on",
    )
    log_cleaner_io_buffer_size: int = integer(
        524_288,
        at_least=4_096,
        doc="Memory for reading and writing logs, of all compactions together; a larger batch has it to itself.",
        update_mode=UpdateMode.CLUSTER_WIDE,
        takes_effect="from the next cleaning on",
    )
    log_cleaner_io_max_bytes_per_second: float = double(
        sys.float_info.max,
        valid=at_least(1),
        doc="The most that compactions read and write together.",
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    log_cleaner_backoff_ms: int = long(
        15_000,
        at_least=0,
        doc="How long the cleaner waits when no log has to be compacted.",
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    log_scrub_bytes_per_second: int = long(
        10 * MIB,
        at_least=1,
        doc="The most that is read of closed segments to see whether they are damaged; a batch counts as 2"
        " KiB at least.",
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    log_scrub_interval_ms: int = long(
        7 * DAY_MS,
        at_least=-1,
        doc="How often each closed segment is read to see whether it is damaged; -1: only when `klamm log scrub` asks.",
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    add_partitions_to_txn_retry_backoff_ms: int = integer(
        20,
        at_least=1,
        doc="How long a broker waits before it asks a coordinator again whose transaction before is still being ended.",
    )
    add_partitions_to_txn_retry_backoff_max_ms: int = integer(
        100, at_least=0, doc="How long a broker asks so before it leaves that to the producer."
    )
    request_timeout_ms: int = integer(
        30_000, at_least=1, doc="How long a transaction's marker may take to reach all in-sync replicas."
    )
    producer_id_expiration_ms: int = integer(
        DAY_MS,
        at_least=1,
        doc="How long the sequence numbers of a producer that sends nothing are remembered.",
        update_mode=UpdateMode.CLUSTER_WIDE,
        takes_effect="at the next check of the retention, or cleaning",
    )
    producer_ids_per_partition_max: int = integer(
        10_000,
        at_least=1,
        doc="How many idempotent producers a partition remembers; beyond that the one that wrote first is"
        " forgotten. Ours.",
    )
    # Quotas of clients
    quota_window_num: int = integer(
        11, at_least=2, doc="How many windows are kept to tell the rates that quotas of clients bound."
    )
    quota_window_size_seconds: int = integer(1, at_least=1, doc="How long each of these windows is.")
    # Replication
    num_replica_fetchers: int = integer(
        1,
        at_least=1,
        doc="Streams to each leader that partitions are followed on.",
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    replica_lag_time_max_ms: int = long(
        30_000, at_least=1, doc="A follower that has not been caught up for this long leaves the in-sync set."
    )
    replica_fetch_min_bytes: int = integer(
        1, at_least=1, doc="The least that a leader answers a follower with before replica.fetch.wait.max.ms is over."
    )
    replica_fetch_max_bytes: int = integer(
        1 * MIB,
        at_least=0,
        doc="The most of one partition in an answer to a follower; a first batch that is larger comes whole.",
    )
    replica_fetch_response_max_bytes: int = integer(
        10 * MIB,
        at_least=0,
        doc="The most of all partitions in an answer to a follower. Leaders send 1 MiB at a time at most.",
    )
    replica_fetch_wait_max_ms: int = integer(
        500, at_least=1, doc="How long a leader may keep a follower waiting; less than replica.lag.time.max.ms."
    )
    replica_fetch_backoff_ms: int = integer(
        1_000,
        at_least=1,
        doc="How long a partition is left alone after an error of its leader, and the longest pause before connecting.",
    )
    replica_high_watermark_checkpoint_interval_ms: int = long(
        5_000, at_least=1, doc="How often high watermarks are written to disk."
    )
    leader_replication_throttled_rate: int = long(
        LONG_MAX,
        at_least=0,
        update_mode=UpdateMode.CLUSTER_WIDE,
        doc="Bytes per second that a leader sends of replicas in their topics' leader.replication.throttled.replicas.",
    )
    follower_replication_throttled_rate: int = long(
        LONG_MAX,
        at_least=0,
        update_mode=UpdateMode.CLUSTER_WIDE,
        doc="Bytes per second that a follower fetches of replicas in follower.replication.throttled.replicas.",
    )
    replica_alter_log_dirs_io_max_bytes_per_second: int = long(
        LONG_MAX,
        at_least=0,
        update_mode=UpdateMode.CLUSTER_WIDE,
        doc="Bytes per second that replicas are copied at between the broker's log directories.",
    )
    # Serving
    queued_max_request_bytes: int = long(
        # Kafka's -1, unbounded, lets a few slow clients with large requests exhaust the memory.
        512 * MIB,
        at_least=1_024,
        doc="Bytes of all produce requests and fetch answers under way; beyond, produces are refused, produce"
        " streams wait, fetches get less.",
    )
    max_connections: int = integer(
        100_000,  # Kafka's default is unbounded
        at_least=1,
        doc="Connections of Kafka clients; more are closed at once. A listener's own bound holds besides.",
        update_mode=UpdateMode.CLUSTER_WIDE,
        per_listener=True,
        takes_effect="connections that are there stay",
    )
    max_connection_creation_rate: int = integer(
        INT_MAX,
        at_least=1,
        doc="Connections of Kafka clients a second, of late; what comes faster is held back, unread, up to 1,000 of a"
        " listener, beyond which it is closed. A listener's own bound holds besides (KIP-612).",
        update_mode=UpdateMode.CLUSTER_WIDE,
        per_listener=True,
        takes_effect="connections that are held back stay so",
    )
    max_unauthenticated_connections: int = integer(
        500,
        at_least=1,
        doc="Connections of Kafka clients that are not through with their handshake of TLS or their login; more are"
        " closed at once, as are those of one address beyond a tenth of it. Ours.",
    )
    max_incremental_fetch_session_cache_slots: int = integer(
        1_000,
        at_least=0,
        doc="Fetch sessions of Kafka clients (KIP-227); without one, each request and answer names all partitions.",
    )
    min_incremental_fetch_session_eviction_ms: int = long(
        120_000,
        at_least=0,
        doc="How long a fetch session is kept that nobody uses, or that a larger one would replace, when"
        " there is no slot.",
    )
    socket_send_buffer_bytes: int = integer(
        262_144,
        at_least=-1,
        doc="What the kernel holds of records on their way to a Kafka client that fetches; -1: as much as the"
        " kernel likes. Larger than bandwidth times round trip only moves memory.",
    )
    connections_max_idle_ms: int = long(
        600_000, at_least=1_000, doc="A connection of a Kafka client that is silent for longer is closed."
    )
    max_parked_requests: int = integer(
        10_000,
        at_least=1,
        doc="Fetches, and apart from them produces, that wait at once; one more fetch is answered at once"
        " with what there is, one more produce REQUEST_TIMED_OUT.",
    )
    fetch_max_bytes: int = integer(
        55 * MIB, at_least=1_024, doc="The most that one fetch returns, whatever the client asks for."
    )

    def validate(self) -> None:
        # Not super(): a slotted dataclass is not the class that its body closes over.
        MemberConfig.validate(self)
        if not self.data_dirs:
            raise ConfigError("log.dirs: the list is empty, expected at least one directory")
        if self.replica_fetch_wait_max_ms > self.replica_lag_time_max_ms:
            raise ConfigError(
                f"replica.fetch.wait.max.ms={self.replica_fetch_wait_max_ms}: expected at most"
                f" replica.lag.time.max.ms={self.replica_lag_time_max_ms}, or followers of idle partitions seem to lag"
            )
        if self.queued_max_request_bytes < self.socket_request_max_bytes:
            raise ConfigError(
                f"queued.max.request.bytes={self.queued_max_request_bytes}: expected at least"
                f" socket.request.max.bytes={self.socket_request_max_bytes}, or the largest request never fits"
            )
        if self.log_cleaner_dedupe_buffer_size // self.log_cleaner_threads < MIB:
            raise ConfigError(
                f"log.cleaner.dedupe.buffer.size={self.log_cleaner_dedupe_buffer_size}: expected at least {MIB} for"
                f" each of log.cleaner.threads={self.log_cleaner_threads}"
            )

    @property
    def data_dirs(self) -> tuple[str, ...]:
        """`log.dirs`, or else `log.dir`; each once."""
        return tuple(dict.fromkeys(self.log_dir if self.log_dirs is None else self.log_dirs))


BROKER_CONFIGS: Mapping[str, Setting] = {**BrokerConfig.ALSO_KNOWN, **definitions(BrokerConfig)}
