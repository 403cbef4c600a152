"""The configs a topic may have: Kafka's LogConfig (4.x), with its defaults, and the broker configs behind them.

A topic that does not set a config takes the brokers': `retention.ms` is `log.retention.ms`, or else
`log.retention.minutes` times 60,000, or else `log.retention.hours` times 3,600,000. The order is Kafka's
(ServerTopicConfigSynonyms).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from klamm_server.config_def import (
    LONG_MAX,
    ConfigDef,
    ConfigType,
    ConfigValue,
    UpdateMode,
    Validator,
    at_least,
    between,
    list_matching,
    list_of,
    one_of,
)

HOUR_MS = 60 * 60 * 1000
DAY_MS = 24 * HOUR_MS
MIB = 1024 * 1024


def _topic(
    name: str,
    type_: ConfigType,
    default: ConfigValue,
    validator: Validator | None,
    documentation: str,
) -> ConfigDef:
    return ConfigDef(
        name=name,
        type=type_,
        default=default,
        validator=validator,
        documentation=documentation,
        update_mode=UpdateMode.CLUSTER_WIDE,
    )


_BOOLEAN, _INT, _LONG = ConfigType.BOOLEAN, ConfigType.INT, ConfigType.LONG
_DOUBLE, _STRING, _LIST = ConfigType.DOUBLE, ConfigType.STRING, ConfigType.LIST

_GZIP_LEVELS = Validator(
    expected="-1 or 1 to 9", accepts=lambda value: value == -1 or (isinstance(value, int) and 1 <= value <= 9)
)
_THROTTLED = list_matching(r"\*|[0-9]+:[0-9]+", "* or a list of partition:broker")

_ALL = [
    # cleaning
    _topic(
        "cleanup.policy",
        _LIST,
        ("delete",),
        list_of("delete", "compact"),
        "What happens to old segments: delete drops them by age and size, compact keeps the last record of each"
        " key; both may be set.",
    ),
    _topic(
        "retention.ms",
        _LONG,
        7 * DAY_MS,
        at_least(-1),
        "With cleanup.policy delete, a segment is dropped when its newest record is older than this; -1: never.",
    ),
    _topic(
        "retention.bytes",
        _LONG,
        -1,
        None,
        "With cleanup.policy delete, the oldest segments are dropped while a partition holds more than this;"
        " -1: never.",
    ),
    _topic(
        "delete.retention.ms",
        _LONG,
        DAY_MS,
        at_least(0),
        "How long compaction keeps a tombstone, so that a reader from the start still sees the deletion.",
    ),
    _topic(
        "min.compaction.lag.ms",
        _LONG,
        0,
        at_least(0),
        "Records younger than this are not compacted.",
    ),
    _topic(
        "max.compaction.lag.ms",
        _LONG,
        LONG_MAX,
        at_least(1),
        "Records older than this are compacted whatever the dirty ratio says.",
    ),
    _topic(
        "min.cleanable.dirty.ratio",
        _DOUBLE,
        0.5,
        between(0, 1),
        "A log is compacted when at least this part of it has not been compacted yet.",
    ),
    _topic(
        "file.delete.delay.ms",
        _LONG,
        60_000,
        at_least(0),
        "How long a file that is no longer needed stays on disk, for readers that still use it.",
    ),
    # segments
    _topic(
        "segment.bytes",
        _INT,
        1024 * MIB,
        at_least(MIB),
        "A segment file never grows beyond this; retention works on whole segments.",
    ),
    _topic(
        "segment.ms",
        _LONG,
        7 * DAY_MS,
        at_least(1),
        "A segment is closed when its first record is older than this, even when it is not full.",
    ),
    _topic(
        "segment.jitter.ms",
        _LONG,
        0,
        at_least(0),
        "At most this is randomly taken off segment.ms, so that not all partitions roll at once.",
    ),
    _topic(
        "segment.index.bytes",
        _INT,
        10 * MIB,
        at_least(4),
        "Upper bound of each index file of a segment; a full index closes the segment.",
    ),
    _topic(
        "index.interval.bytes",
        _INT,
        4_096,
        at_least(0),
        "How many bytes of the log lie between two entries of its index.",
    ),
    _topic(
        "preallocate",
        _BOOLEAN,
        False,
        None,
        "Whether a new segment takes its whole size on disk at once.",
    ),
    # flushing
    _topic(
        "flush.messages",
        _LONG,
        LONG_MAX,
        at_least(1),
        "The log is fsynced after this many records; by default that is left to the operating system and the replicas.",
    ),
    _topic(
        "flush.ms",
        _LONG,
        LONG_MAX,
        at_least(0),
        "The log is fsynced when its oldest record that is not has waited this long.",
    ),
    # records
    _topic(
        "max.message.bytes",
        _INT,
        MIB + 12,
        at_least(0),
        "The largest record batch that is accepted, as compressed by the producer.",
    ),
    _topic(
        "compression.type",
        _STRING,
        "producer",
        one_of("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        "How batches are stored: producer keeps the producer's choice, anything else recompresses those that differ.",
    ),
    _topic(
        "compression.gzip.level",
        _INT,
        -1,
        _GZIP_LEVELS,
        "The level when compression.type is gzip; -1 is the library's own default.",
    ),
    _topic(
        "compression.lz4.level",
        _INT,
        9,
        between(1, 17),
        "The level when compression.type is lz4.",
    ),
    _topic(
        "compression.zstd.level",
        _INT,
        3,
        between(-131_072, 22),
        "The level when compression.type is zstd.",
    ),
    _topic(
        "message.timestamp.type",
        _STRING,
        "CreateTime",
        one_of("CreateTime", "LogAppendTime"),
        "Whether a record's timestamp is the producer's or the time of its append.",
    ),
    _topic(
        "message.timestamp.before.max.ms",
        _LONG,
        LONG_MAX,
        at_least(0),
        "With CreateTime, a record whose timestamp is further in the past than this is refused.",
    ),
    _topic(
        "message.timestamp.after.max.ms",
        _LONG,
        HOUR_MS,
        at_least(0),
        "With CreateTime, a record whose timestamp is further in the future than this is refused.",
    ),
    # replication
    _topic(
        "min.insync.replicas",
        _INT,
        1,
        at_least(1),
        "A produce with acks=all is refused while fewer replicas than this are in sync.",
    ),
    _topic(
        "unclean.leader.election.enable",
        _BOOLEAN,
        False,
        None,
        "Whether a replica that is not in sync may lead when no other can, at the price of lost records.",
    ),
    _topic(
        "leader.replication.throttled.replicas",
        _LIST,
        (),
        _THROTTLED,
        "Replicas whose replication is throttled on the leader's side, as partition:broker, or * for all.",
    ),
    _topic(
        "follower.replication.throttled.replicas",
        _LIST,
        (),
        _THROTTLED,
        "Replicas whose replication is throttled on the follower's side, as partition:broker, or * for all.",
    ),
    # tiered storage: the names are known so that a topic exported from Kafka can be created here
    _topic(
        "remote.storage.enable",
        _BOOLEAN,
        False,
        Validator(expected="false: there is no tiered storage", accepts=lambda value: value is False),
        "Whether old segments move to remote storage; only false is possible.",
    ),
    _topic(
        "remote.log.copy.disable",
        _BOOLEAN,
        False,
        None,
        "Without effect: there is no remote storage.",
    ),
    _topic(
        "remote.log.delete.on.disable",
        _BOOLEAN,
        False,
        None,
        "Without effect: there is no remote storage.",
    ),
    _topic(
        "local.retention.ms",
        _LONG,
        -2,
        at_least(-2),
        "Without effect: there is no remote storage, so everything is local and retention.ms decides.",
    ),
    _topic(
        "local.retention.bytes",
        _LONG,
        -2,
        at_least(-2),
        "Without effect: there is no remote storage, so everything is local and retention.bytes decides.",
    ),
]

TOPIC_CONFIGS: Mapping[str, ConfigDef] = {definition.name: definition for definition in _ALL}


class Synonym(NamedTuple):
    """A broker config that stands in for a topic config; its number times `factor` is the topic's."""

    name: str
    factor: int = 1


_SAME = [
    "unclean.leader.election.enable",
    "min.insync.replicas",
    "compression.type",
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.zstd.level",
]
_WITH_LOG_PREFIX = [
    "segment.bytes",
    "retention.bytes",
    "index.interval.bytes",
    "cleanup.policy",
    "preallocate",
    "message.timestamp.type",
    "message.timestamp.before.max.ms",
    "message.timestamp.after.max.ms",
]
_WITH_CLEANER_PREFIX = ["delete.retention.ms", "min.compaction.lag.ms", "max.compaction.lag.ms"]

SYNONYMS: Mapping[str, tuple[Synonym, ...]] = {
    **{name: (Synonym(name),) for name in _SAME},
    **{name: (Synonym(f"log.{name}"),) for name in _WITH_LOG_PREFIX},
    **{name: (Synonym(f"log.cleaner.{name}"),) for name in _WITH_CLEANER_PREFIX},
    "min.cleanable.dirty.ratio": (Synonym("log.cleaner.min.cleanable.ratio"),),
    "file.delete.delay.ms": (Synonym("log.segment.delete.delay.ms"),),
    "segment.index.bytes": (Synonym("log.index.size.max.bytes"),),
    "segment.ms": (Synonym("log.roll.ms"), Synonym("log.roll.hours", HOUR_MS)),
    "segment.jitter.ms": (Synonym("log.roll.jitter.ms"), Synonym("log.roll.jitter.hours", HOUR_MS)),
    "flush.messages": (Synonym("log.flush.interval.messages"),),
    "flush.ms": (Synonym("log.flush.interval.ms"), Synonym("log.flush.scheduler.interval.ms")),
    "retention.ms": (
        Synonym("log.retention.ms"),
        Synonym("log.retention.minutes", 60_000),
        Synonym("log.retention.hours", HOUR_MS),
    ),
    "max.message.bytes": (Synonym("message.max.bytes"),),
}
"""By topic config: the broker configs it falls back to, the first that is set winning."""
