"""The configs a broker understands: Kafka's names and defaults, and the few of our own.

Those that stand in for a topic config (topic_configs.SYNONYMS) are made from it, and can be changed at run time:
the defaults of topics are looked up again whenever the metadata changes. So can throttles. Everything else is read at
the start. A config is listed when something acts on it: one that does not work yet is refused like an unknown name.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace

from klamm_server.config_def import (
    LONG_MAX,
    REQUIRED,
    ConfigDef,
    ConfigType,
    ConfigValue,
    Required,
    UpdateMode,
    Validator,
    at_least,
    between,
    list_matching,
    one_of,
)
from klamm_server.topic_configs import DAY_MS, MIB, SYNONYMS, TOPIC_CONFIGS

_BOOLEAN, _INT, _LONG = ConfigType.BOOLEAN, ConfigType.INT, ConfigType.LONG
_DOUBLE, _STRING, _LIST = ConfigType.DOUBLE, ConfigType.STRING, ConfigType.LIST

_UNSET_WHEN_IN_OTHER_UNITS = frozenset(
    {"log.roll.ms", "log.roll.jitter.ms", "log.retention.ms", "log.flush.interval.ms"}
)
"""First synonyms that have a second one: only that one has a default, or it would never be looked at."""


def _default_of_topics(topic_config: str) -> ConfigDef:
    name = SYNONYMS[topic_config][0].name
    definition = TOPIC_CONFIGS[topic_config]
    if name == topic_config:
        return definition
    return replace(
        definition,
        name=name,
        default=None if name in _UNSET_WHEN_IN_OTHER_UNITS else definition.default,
        documentation=f"For topics that do not set {topic_config}: {definition.documentation}",
    )


def _broker(
    name: str,
    type_: ConfigType,
    default: ConfigValue | Required,
    validator: Validator | None,
    documentation: str,
    update_mode: UpdateMode = UpdateMode.READ_ONLY,
) -> ConfigDef:
    return ConfigDef(
        name=name,
        type=type_,
        default=default,
        validator=validator,
        documentation=documentation,
        update_mode=update_mode,
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

_OWN = [
    # the process
    _broker(
        "node.id",
        _INT,
        REQUIRED,
        at_least(0),
        "The id of this server, unique among the servers of its kind.",
    ),
    _broker(
        "listeners",
        _LIST,
        # Kafka listens on every interface; a server without authentication does not, unless it is told to.
        ("GRPC://localhost:9094",),
        None,
        "Where the server listens, as NAME://host:port; an empty host is every interface. GRPC is the gRPC API, KAFKA"
        " (or PLAINTEXT) a broker's door for Kafka clients; other names need listener.security.protocol.map. Who came"
        " in by a listener is told the addresses that the other servers have under its name. Servers use the first gRPC"
        " listener of each other.",
    ),
    _broker(
        "advertised.listeners",
        _LIST,
        None,
        None,
        "What clients and other servers dial, as NAME://host:port, for the listeners whose own address that is not.",
    ),
    _broker(
        "listener.security.protocol.map",
        _LIST,
        (),
        None,
        "What is spoken at listeners of other names than these, as NAME:GRPC or NAME:KAFKA (or NAME:PLAINTEXT, which is"
        " the same).",
    ),
    _broker("broker.rack", _STRING, None, None, "Where the broker stands; replicas are spread over racks."),
    _broker(
        "replica.selector.class",
        _STRING,
        None,
        _REPLICA_SELECTOR,
        "Which replica a consumer with a client.rack is told to read from: RackAwareReplicaSelector, one in its rack;"
        " LeaderSelector, or nothing, the leader.",
    ),
    _broker(
        "controller.quorum.bootstrap.servers",
        _LIST,
        ("localhost:9093",),
        None,
        "Controllers to ask first, as host:port.",
    ),
    _broker(
        "broker.heartbeat.interval.ms",
        _INT,
        2_000,
        at_least(1),
        "How often a server tells the controller that it is alive.",
    ),
    _broker(
        "broker.session.timeout.ms",
        _INT,
        9_000,
        at_least(1),
        "A server that the controller has not heard of for this long is fenced.",
    ),
    _broker(
        "initial.broker.registration.timeout.ms",
        _INT,
        60_000,
        at_least(1),
        "How long a starting server tries to register before it gives up and exits.",
    ),
    _broker(
        "controlled.shutdown.enable",
        _BOOLEAN,
        True,
        None,
        "Whether a broker that stops hands over its leaderships first.",
    ),
    _broker(
        "socket.request.max.bytes",
        _INT,
        100 * MIB,
        at_least(1),
        "The largest request that is accepted.",
    ),
    # topics
    _broker("num.partitions", _INT, 1, at_least(1), "Partitions of a topic that is created without saying how many."),
    _broker(
        "default.replication.factor",
        _INT,
        1,
        at_least(1),
        "Replicas of a topic that is created without saying how many.",
    ),
    _broker(
        "auto.create.topics.enable",
        _BOOLEAN,
        True,
        None,
        "Whether a client that asks for an unknown topic by name may have it created.",
    ),
    _broker("delete.topic.enable", _BOOLEAN, True, None, "Whether topics can be deleted."),
    _broker(
        "offsets.topic.num.partitions",
        _INT,
        50,
        at_least(1),
        "Shards of the consumer groups; must not change once __consumer_offsets exists.",
    ),
    _broker(
        "offsets.topic.replication.factor",
        _INT,
        3,
        at_least(1),
        "Replicas of __consumer_offsets; it cannot be created while fewer brokers are alive.",
    ),
    # the log
    _broker(
        "log.dir",
        _LIST,
        # Kafka's /tmp/kafka-logs is emptied by a reboot.
        ("klamm-data/broker",),
        None,
        "The directory of the log when log.dirs is not set.",
    ),
    _broker("log.dirs", _LIST, None, None, "The directories of the log; partitions are spread over them."),
    _broker(
        "log.dirs.lost",
        _LIST,
        (),
        list_matching("[A-Za-z0-9_-]{22}", "a list of directory ids, as in meta.properties"),
        "Ids of directories that will not come back: a new one may take their place, empty.",
    ),
    _broker(
        "log.retention.minutes",
        _INT,
        None,
        _LIMIT_OR_NONE,
        "retention.ms in minutes, for topics, when log.retention.ms is not set.",
    ),
    _broker(
        "log.retention.hours",
        _INT,
        7 * 24,
        _LIMIT_OR_NONE,
        "retention.ms in hours, for topics, when log.retention.minutes is not set either.",
    ),
    _broker(
        "log.roll.hours",
        _INT,
        7 * 24,
        at_least(1),
        "segment.ms in hours, for topics, when log.roll.ms is not set.",
    ),
    _broker(
        "log.roll.jitter.hours",
        _INT,
        0,
        at_least(0),
        "segment.jitter.ms in hours, for topics, when log.roll.jitter.ms is not set.",
    ),
    _broker(
        "log.flush.scheduler.interval.ms",
        _LONG,
        LONG_MAX,
        at_least(0),
        "How often it is checked what flush.ms asks to be fsynced, and its default.",
    ),
    _broker(
        "log.retention.check.interval.ms",
        _LONG,
        5 * 60_000,
        at_least(1),
        "How often it is checked which segments retention drops.",
    ),
    _broker(
        "log.flush.offset.checkpoint.interval.ms",
        _INT,
        60_000,
        at_least(0),
        "How often the recovery points are written: what lies behind them is not scanned after a crash.",
    ),
    _broker(
        "num.recovery.threads.per.data.dir",
        _INT,
        2,
        at_least(1),
        "How many logs of one directory are recovered at the same time.",
    ),
    _broker(
        "log.open.segments.max",
        _INT,
        512,
        at_least(1),
        "Closed segments that are kept open for reading, over all partitions.",
    ),
    _broker("log.cleaner.enable", _BOOLEAN, True, None, "Whether topics with cleanup.policy compact are compacted."),
    _broker("log.cleaner.threads", _INT, 1, at_least(1), "How many logs are compacted at the same time."),
    _broker(
        "log.cleaner.dedupe.buffer.size",
        _LONG,
        128 * MIB,
        at_least(MIB),
        "Memory for the keys that compactions deal with, of all together; a key takes 176 bytes besides its own. A log"
        " with more new keys is compacted in several rounds.",
    ),
    _broker(
        "log.cleaner.io.buffer.load.factor",
        _DOUBLE,
        0.9,
        between(0.01, 1),
        "How full the dedupe buffer may get.",
    ),
    _broker(
        "log.cleaner.io.buffer.size",
        _INT,
        512 * 1024,
        at_least(4 * 1024),
        "Memory for reading and writing logs, of all compactions together; a larger batch has it to itself.",
    ),
    _broker(
        "log.cleaner.io.max.bytes.per.second",
        _DOUBLE,
        sys.float_info.max,
        at_least(1),
        "The most that compactions read and write together.",
    ),
    _broker(
        "log.cleaner.backoff.ms",
        _LONG,
        15_000,
        at_least(0),
        "How long the cleaner waits when no log has to be compacted.",
    ),
    _broker(
        "log.scrub.bytes.per.second",
        _LONG,
        10 * MIB,
        at_least(1),
        "The most that is read of closed segments to see whether they are damaged; a batch counts as 2 KiB at least.",
    ),
    _broker(
        "log.scrub.interval.ms",
        _LONG,
        7 * 24 * 3_600_000,
        at_least(-1),
        "How often each closed segment is read to see whether it is damaged; -1: only when `klamm log scrub` asks.",
    ),
    _broker(
        "add.partitions.to.txn.retry.backoff.ms",
        _INT,
        20,
        at_least(1),
        "How long a broker waits before it asks a coordinator again whose transaction before is still being ended.",
    ),
    _broker(
        "add.partitions.to.txn.retry.backoff.max.ms",
        _INT,
        100,
        at_least(0),
        "How long a broker asks so before it leaves that to the producer.",
    ),
    _broker(
        "request.timeout.ms",
        _INT,
        30_000,
        at_least(1),
        "How long a transaction's marker may take to reach all in-sync replicas.",
    ),
    _broker(
        "producer.id.expiration.ms",
        _INT,
        DAY_MS,
        at_least(1),
        "How long the sequence numbers of a producer that sends nothing are remembered.",
    ),
    _broker(
        "producer.ids.per.partition.max",
        _INT,
        10_000,
        at_least(1),
        "How many idempotent producers a partition remembers; beyond that the one that wrote first is forgotten. Ours.",
    ),
    # replication
    _broker(
        "num.replica.fetchers",
        _INT,
        1,
        at_least(1),
        "Streams to each leader that partitions are followed on.",
    ),
    _broker(
        "replica.lag.time.max.ms",
        _LONG,
        30_000,
        at_least(1),
        "A follower that has not been caught up for this long leaves the in-sync set.",
    ),
    _broker(
        "replica.fetch.min.bytes",
        _INT,
        1,
        at_least(1),
        "The least that a leader answers a follower with before replica.fetch.wait.max.ms is over.",
    ),
    _broker(
        "replica.fetch.max.bytes",
        _INT,
        MIB,
        at_least(0),
        "The most of one partition in an answer to a follower; a first batch that is larger comes whole.",
    ),
    _broker(
        "replica.fetch.response.max.bytes",
        _INT,
        10 * MIB,
        at_least(0),
        "The most of all partitions in an answer to a follower. Leaders send 1 MiB at a time at most.",
    ),
    _broker(
        "replica.fetch.wait.max.ms",
        _INT,
        500,
        at_least(1),
        "How long a leader may keep a follower waiting; less than replica.lag.time.max.ms.",
    ),
    _broker(
        "replica.fetch.backoff.ms",
        _INT,
        1_000,
        at_least(1),
        "How long a partition is left alone after an error of its leader, and the longest pause before connecting.",
    ),
    _broker(
        "replica.high.watermark.checkpoint.interval.ms",
        _LONG,
        5_000,
        at_least(1),
        "How often high watermarks are written to disk.",
    ),
    _broker(
        "leader.replication.throttled.rate",
        _LONG,
        LONG_MAX,
        at_least(0),
        "Bytes per second that a leader sends of replicas in their topics' leader.replication.throttled.replicas.",
        UpdateMode.CLUSTER_WIDE,
    ),
    _broker(
        "follower.replication.throttled.rate",
        _LONG,
        LONG_MAX,
        at_least(0),
        "Bytes per second that a follower fetches of replicas in follower.replication.throttled.replicas.",
        UpdateMode.CLUSTER_WIDE,
    ),
    _broker(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        _LONG,
        LONG_MAX,
        at_least(0),
        "Bytes per second that replicas are copied at between the broker's log directories.",
        UpdateMode.CLUSTER_WIDE,
    ),
    # serving
    _broker(
        "queued.max.request.bytes",
        _LONG,
        # Kafka's -1, unbounded, lets a few slow clients with large requests exhaust the memory.
        512 * MIB,
        at_least(1_024),
        "Bytes of all produce requests and fetch answers under way; beyond, produces are refused, produce streams"
        " wait, fetches get less.",
    ),
    _broker(
        "max.connections",
        _INT,
        # Kafka's default is unbounded.
        100_000,
        at_least(1),
        "Connections of Kafka clients; more are closed at once.",
    ),
    _broker(
        "max.incremental.fetch.session.cache.slots",
        _INT,
        1_000,
        at_least(0),
        "Fetch sessions of Kafka clients (KIP-227); who has none sends and is sent every partition each time.",
    ),
    _broker(
        "min.incremental.fetch.session.eviction.ms",
        _LONG,
        120_000,
        at_least(0),
        "How long a fetch session is kept that nobody uses, or that a larger one would replace, when there is no slot.",
    ),
    _broker(
        "socket.send.buffer.bytes",
        _INT,
        262_144,
        at_least(-1),
        "What the kernel holds of records on their way to a Kafka client that fetches; -1: as much as the kernel likes."
        " Larger than bandwidth times round trip only moves memory.",
    ),
    _broker(
        "connections.max.idle.ms",
        _LONG,
        600_000,
        at_least(1_000),
        "A connection of a Kafka client that is silent for longer is closed.",
    ),
    _broker(
        "max.parked.requests",
        _INT,
        10_000,
        at_least(1),
        "Fetches, and apart from them produces, that wait at once; one more fetch is answered at once with what there"
        " is, one more produce REQUEST_TIMED_OUT.",
    ),
    _broker(
        "fetch.max.bytes",
        _INT,
        55 * MIB,
        at_least(1_024),
        "The most that one fetch returns, whatever the client asks for.",
    ),
    # our own
    _broker(
        "max.concurrent.rpcs",
        _INT,
        20_000,
        at_least(1),
        "Calls that a server works on or keeps waiting at once; one more is refused.",
    ),
    _broker(
        "shutdown.grace.ms",
        _INT,
        5_000,
        at_least(0),
        "How long calls under way may go on when the process is asked to stop.",
    ),
    _broker(
        "tracing.enable",
        _BOOLEAN,
        False,
        None,
        "Spans of calls for OpenTelemetry; OTEL_EXPORTER_OTLP_ENDPOINT and its like in the environment say where to.",
    ),
    _broker(
        "metrics.host",
        _STRING,
        None,
        None,
        "Where the Prometheus endpoint listens (empty: everywhere); unless set, where the first gRPC listener does.",
    ),
    _broker("metrics.port", _INT, 0, between(0, 65_535), "Port of the Prometheus endpoint /metrics; 0: none."),
    _broker(
        "log.level",
        _STRING,
        "INFO",
        one_of("DEBUG", "INFO", "WARNING", "ERROR"),
        "The least severe messages that are logged.",
    ),
    _broker(
        "log.format",
        _STRING,
        "auto",
        one_of("auto", "text", "json"),
        "How messages are logged: as text, as JSON (an object a line), or (auto) as text on a terminal, else as JSON.",
    ),
]

BROKER_CONFIGS: Mapping[str, ConfigDef] = {
    **{synonyms[0].name: _default_of_topics(name) for name, synonyms in SYNONYMS.items()},
    **{definition.name: definition for definition in _OWN},
}
