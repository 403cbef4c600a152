"""The settings of a broker: Kafka's names and defaults, and a few of Klamm's own.

Settings that are defaults of topic configs (topic_configs.SYNONYMS) are made from these. The defaults of topics are
looked up again whenever the metadata changes. Other settings with an update mode change at run time (KIP-226), as in
Kafka; `dynamic_configs` has the effective values. A setting is listed here only if it has an effect. A setting that
does not work yet is refused like an unknown name."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

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
"""The first synonyms of a topic config that have another synonym in other units. Only the other one has a default,
because it would otherwise never be used."""


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

FETCH_SESSIONS_PART: Final = 16
"""The fetch sessions may take this part of the memory that the process may use, unless fetch.session.max.bytes is
set."""

_KAFKA_REPLICA = "org.apache.kafka.common.replica."
_REPLICA_SELECTOR = one_of(
    "RackAwareReplicaSelector",
    f"{_KAFKA_REPLICA}RackAwareReplicaSelector",
    "LeaderSelector",
    f"{_KAFKA_REPLICA}LeaderSelector",
)
"""Kafka loads any class. Klamm accepts only Kafka's own two, by short or full name."""


_TOPIC_DEFAULTS: Mapping[str, Setting] = {
    synonyms[0].name: _default_of_topics(name) for name, synonyms in SYNONYMS.items()
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig(MemberConfig):
    """The configuration of a broker. `load(BrokerConfig, properties)` of `klamm_server.config.server_config` makes
    it.
    """

    ALSO_KNOWN: ClassVar[Mapping[str, Setting]] = {**MemberConfig.ALSO_KNOWN, **_TOPIC_DEFAULTS}

    broker_rack: str | None = text(
        None,
        doc="The rack of the broker, or a path of failure domains from the largest to the host, as dc1/host7. The"
        " replicas of a partition are on different hosts while there are enough, and spread over the largest domains"
        " first.",
    )
    replica_selector_class: str | None = text(
        None,
        valid=_REPLICA_SELECTOR,
        doc="Selects the replica from which a consumer with a client.rack reads."
        " RackAwareReplicaSelector: a replica in the consumer's rack, or else the one that shares the most levels of"
        " its path. LeaderSelector, or no value: the leader.",
    )
    # Topics
    num_partitions: int = integer(
        1,
        at_least=1,
        doc="The number of partitions of a new topic whose creator does not specify one.",
        read_by="controller",
    )
    default_replication_factor: int = integer(
        1,
        at_least=1,
        doc="The number of replicas of a new topic whose creator does not specify one.",
        read_by="controller",
    )
    auto_create_topics_enable: bool = boolean(
        True, doc="Whether a client's request for an unknown topic, by name, may create the topic."
    )
    delete_topic_enable: bool = boolean(True, doc="Whether topics can be deleted.", read_by="controller")
    offsets_topic_num_partitions: int = integer(
        50,
        at_least=1,
        doc="The number of partitions of __consumer_offsets, over which consumer groups are spread. It"
        " must not change once the topic exists.",
    )
    offsets_topic_replication_factor: int = integer(
        3,
        at_least=1,
        doc="The number of replicas of __consumer_offsets. The topic cannot be created while fewer brokers are alive.",
        read_by="controller",
    )
    # The log
    log_dir: tuple[str, ...] = text_list(
        ("klamm-data/broker",),  # a reboot empties Kafka's default /tmp/kafka-logs
        doc="The log directory if log.dirs is not set.",
    )
    log_dirs: tuple[str, ...] | None = text_list(None, doc="The log directories. The partitions are spread over them.")
    log_dirs_lost: tuple[str, ...] = text_list(
        (),
        valid=list_matching("[A-Za-z0-9_-]{22}", "a list of directory ids, as in meta.properties"),
        doc="The ids of log directories that will not come back. A new, empty directory may take the place of each.",
    )
    log_retention_minutes: int | None = integer(
        None,
        valid=_LIMIT_OR_NONE,
        doc="The default of retention.ms for topics, in minutes. It applies if log.retention.ms is not set.",
    )
    log_retention_hours: int = integer(
        168,
        valid=_LIMIT_OR_NONE,
        doc="The default of retention.ms for topics, in hours. It applies if neither log.retention.ms"
        " nor log.retention.minutes is set.",
    )
    log_roll_hours: int = integer(
        168, at_least=1, doc="The default of segment.ms for topics, in hours. It applies if log.roll.ms is not set."
    )
    log_roll_jitter_hours: int = integer(
        0,
        at_least=0,
        doc="The default of segment.jitter.ms for topics, in hours. It applies if log.roll.jitter.ms is not set.",
    )
    log_flush_scheduler_interval_ms: int = long(
        LONG_MAX,
        at_least=0,
        doc="How often the broker looks for logs that flush.ms requires it to fsync. It is also the"
        " default of flush.ms.",
    )
    log_retention_check_interval_ms: int = long(
        300_000, at_least=1, doc="How often the broker looks for segments that retention deletes."
    )
    log_flush_offset_checkpoint_interval_ms: int = integer(
        60_000,
        at_least=0,
        doc="How often the broker writes its recovery points. After a crash, it does not scan the part"
        " of a log before the recovery point.",
    )
    num_recovery_threads_per_data_dir: int = integer(
        2,
        at_least=1,
        doc="How many logs of each directory are recovered at the same time.",
        update_mode=UpdateMode.CLUSTER_WIDE,
        takes_effect="when the broker stops; at its start it uses the value of its file, because it recovers logs"
        " before it knows the metadata",
    )
    log_open_segments_max: int = integer(
        512, at_least=1, doc="The most closed segments, over all partitions, that stay open for reading."
    )
    log_cleaner_enable: bool = boolean(True, doc="Whether topics with cleanup.policy compact are compacted.")
    log_cleaner_threads: int = integer(
        1,
        at_least=1,
        doc="How many logs are compacted at the same time.",
        update_mode=UpdateMode.CLUSTER_WIDE,
        takes_effect="a compaction in progress continues",
    )
    log_cleaner_dedupe_buffer_size: int = long(
        128 * MIB,
        at_least=MIB,
        doc="The memory for keys that all compactions share. A key takes 176 bytes in addition to its"
        " own size. A log with more new keys is compacted in several rounds.",
        update_mode=UpdateMode.CLUSTER_WIDE,
        takes_effect="from the next compaction",
    )
    log_cleaner_io_buffer_load_factor: float = double(
        0.9,
        valid=between(0.01, 1),
        doc="How full the dedupe buffer may become, as a fraction.",
        update_mode=UpdateMode.CLUSTER_WIDE,
        takes_effect="from the next compaction",
    )
    log_cleaner_io_buffer_size: int = integer(
        524_288,
        at_least=4_096,
        doc="The memory for reading and writing logs that all compactions share. A batch that is larger"
        " than its buffer is read alone.",
        update_mode=UpdateMode.CLUSTER_WIDE,
        takes_effect="from the next compaction",
    )
    log_cleaner_io_max_bytes_per_second: float = double(
        sys.float_info.max,
        valid=at_least(1),
        doc="The most bytes per second that all compactions together read and write.",
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    log_cleaner_backoff_ms: int = long(
        15_000,
        at_least=0,
        doc="How long the cleaner waits if no log needs compaction.",
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    log_scrub_bytes_per_second: int = long(
        10 * MIB,
        at_least=1,
        doc="The most bytes per second that a broker reads from closed segments to find damage. A batch"
        " counts as at least 2 KiB.",
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    log_scrub_interval_ms: int = long(
        7 * DAY_MS,
        at_least=-1,
        doc="How often the broker reads each closed segment to find damage. -1: only when `klamm log"
        " scrub` asks for it.",
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    add_partitions_to_txn_retry_backoff_ms: int = integer(
        20,
        at_least=1,
        doc="How long a broker waits before it asks the coordinator again to add a partition to a"
        " transaction. The coordinator refuses while it still completes the producer's previous"
        " transaction.",
    )
    add_partitions_to_txn_retry_backoff_max_ms: int = integer(
        100,
        at_least=0,
        doc="How long a broker retries to add a partition to a transaction. After that, the producer must retry.",
    )
    request_timeout_ms: int = integer(
        30_000,
        at_least=1,
        doc="How long a transaction marker may take to reach all in-sync replicas. It is also the time-out of Produce"
        " and DeleteRecords requests over gRPC that name none.",
    )
    producer_id_expiration_ms: int = integer(
        DAY_MS,
        at_least=1,
        doc="A partition forgets the sequence numbers of a producer that has sent nothing for this long.",
        update_mode=UpdateMode.CLUSTER_WIDE,
        takes_effect="at the next retention check or compaction",
    )
    producer_ids_per_partition_max: int = integer(
        10_000,
        at_least=1,
        doc="The most idempotent producers that a partition remembers. Beyond that, it forgets the"
        " producer that has not written for the longest time and has no open transaction. Klamm's"
        " own setting; Kafka has none.",
    )
    # Replication
    num_replica_fetchers: int = integer(
        1,
        at_least=1,
        doc="The number of streams on which a broker fetches partitions from each leader.",
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    replica_lag_time_max_ms: int = long(
        30_000,
        at_least=1,
        doc="A follower that has not caught up with the leader for this long leaves the in-sync set.",
    )
    replica_fetch_min_bytes: int = integer(
        1,
        at_least=1,
        doc="A leader waits until it has this many bytes for a follower, or until replica.fetch.wait.max.ms is over.",
    )
    replica_fetch_max_bytes: int = integer(
        1 * MIB,
        at_least=0,
        doc="The most bytes of one partition in a response to a follower. A first batch that is larger is sent whole.",
    )
    replica_fetch_response_max_bytes: int = integer(
        10 * MIB,
        at_least=0,
        doc="The most bytes of all partitions in a response to a follower. A leader sends at most 1 MiB at a time.",
    )
    replica_fetch_wait_max_ms: int = integer(
        500,
        at_least=1,
        doc="How long a leader may delay its response to a follower. It must not exceed replica.lag.time.max.ms.",
    )
    replica_fetch_backoff_ms: int = integer(
        1_000,
        at_least=1,
        doc="How long a follower waits before it fetches a partition again after an error. It is also"
        " the longest wait before the follower reconnects to the leader.",
    )
    replica_high_watermark_checkpoint_interval_ms: int = long(
        5_000, at_least=1, doc="How often high watermarks are written to disk."
    )
    leader_replication_throttled_rate: int = long(
        LONG_MAX,
        at_least=0,
        update_mode=UpdateMode.CLUSTER_WIDE,
        doc="The most bytes per second that a leader sends for the replicas in"
        " leader.replication.throttled.replicas of their topics.",
    )
    follower_replication_throttled_rate: int = long(
        LONG_MAX,
        at_least=0,
        update_mode=UpdateMode.CLUSTER_WIDE,
        doc="The most bytes per second that a follower fetches for the replicas in"
        " follower.replication.throttled.replicas.",
    )
    replica_alter_log_dirs_io_max_bytes_per_second: int = long(
        LONG_MAX,
        at_least=0,
        update_mode=UpdateMode.CLUSTER_WIDE,
        doc="The most bytes per second that a broker copies when it moves replicas between its log directories.",
    )
    # Serving
    queued_max_request_bytes: int = long(
        # Kafka's default -1 is unbounded, so that a few slow clients with large requests exhaust the memory.
        512 * MIB,
        at_least=1_024,
        doc="The most bytes of all produce requests and fetch responses in progress. Beyond that, the"
        " broker rejects produce requests, produce streams wait, and fetches return less.",
    )
    max_connections: int = integer(
        100_000,  # Kafka's default is unbounded.
        at_least=1,
        doc="The most connections of Kafka clients. The broker closes further connections at once. A"
        " listener's own limit applies in addition. At most half of the limit of open files.",
        update_mode=UpdateMode.CLUSTER_WIDE,
        per_listener=True,
        takes_effect="open connections stay open",
    )
    max_connection_creation_rate: int = integer(
        INT_MAX,
        at_least=1,
        doc="The most new connections of Kafka clients per second (KIP-612). The broker delays"
        " connections that come faster, up to 1,000 of each listener, and closes the others. A"
        " listener's own limit applies in addition.",
        update_mode=UpdateMode.CLUSTER_WIDE,
        per_listener=True,
        takes_effect="delayed connections stay delayed",
    )
    max_unauthenticated_connections: int = integer(
        500,
        at_least=1,
        doc="The most connections of Kafka clients that have not completed their TLS handshake or"
        " login. The broker closes further connections at once. One address may have a tenth of"
        " them at most. Klamm's own setting; Kafka has none.",
    )
    max_incremental_fetch_session_cache_slots: int = integer(
        1_000,
        at_least=0,
        doc="The most fetch sessions of Kafka clients (KIP-227). Without a session, each request and"
        " response names all partitions.",
    )
    min_incremental_fetch_session_eviction_ms: int = long(
        120_000,
        at_least=0,
        doc="When no slot is free, a new fetch session replaces a session that was unused for longer"
        " than this. It also replaces a smaller session that is older than this.",
    )
    fetch_session_max_bytes: int | None = long(
        None,
        at_least=1,
        doc="How much memory the fetch sessions of Kafka clients may take. One user may take two thirds of it, and less"
        " while others use it. A client without room is served without a session. Klamm's own setting; Kafka has"
        " none.",
        shown="a sixteenth of the memory that the process may use",
    )
    socket_send_buffer_bytes: int = integer(
        262_144,
        at_least=-1,
        doc="The size of the kernel's send buffer for a Kafka client that fetches. -1: the kernel"
        " decides. A buffer that is larger than bandwidth times round-trip time only moves memory"
        " to the kernel.",
    )
    connections_max_idle_ms: int = long(
        600_000,
        at_least=1_000,
        doc="The broker closes the connection of a Kafka client that is idle for longer than this.",
    )
    max_parked_requests: int = integer(
        10_000,
        at_least=1,
        doc="The most fetches of clients that wait at the same time, and likewise the most produce requests. One"
        " user may take two thirds of these places, and less while others use them. A further fetch gets the"
        " available records at once. A further produce request gets REQUEST_TIMED_OUT. Requests of servers have as"
        " many places of their own. Klamm's own setting; Kafka has none.",
    )
    fetch_max_bytes: int = integer(
        55 * MIB, at_least=1_024, doc="The most bytes that one fetch returns, even if the client asks for more."
    )

    def validate(self) -> None:
        # super() fails here: @dataclass(slots=True) creates a new class, and __class__ still names the old one.
        MemberConfig.validate(self)
        if not self.data_dirs:
            raise ConfigError("log.dirs: the list is empty, expected at least one directory")
        if self.replica_fetch_wait_max_ms > self.replica_lag_time_max_ms:
            raise ConfigError(
                f"replica.fetch.wait.max.ms={self.replica_fetch_wait_max_ms}: expected at most"
                f" replica.lag.time.max.ms={self.replica_lag_time_max_ms}, because otherwise followers of idle"
                " partitions seem to lag"
            )
        if self.queued_max_request_bytes < self.socket_request_max_bytes:
            raise ConfigError(
                f"queued.max.request.bytes={self.queued_max_request_bytes}: expected at least"
                f" socket.request.max.bytes={self.socket_request_max_bytes}, the size of the largest request"
            )
        if self.log_cleaner_dedupe_buffer_size // self.log_cleaner_threads < MIB:
            raise ConfigError(
                f"log.cleaner.dedupe.buffer.size={self.log_cleaner_dedupe_buffer_size}: expected at least {MIB} for"
                f" each of log.cleaner.threads={self.log_cleaner_threads}"
            )

    @property
    def data_dirs(self) -> tuple[str, ...]:
        """The directories of `log.dirs`, or else of `log.dir`, each once."""
        return tuple(dict.fromkeys(self.log_dir if self.log_dirs is None else self.log_dirs))


BROKER_CONFIGS: Mapping[str, Setting] = {**BrokerConfig.ALSO_KNOWN, **definitions(BrokerConfig)}
