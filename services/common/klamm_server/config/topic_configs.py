"""The configs a topic may have: Kafka's LogConfig (4.x), with its defaults, and the broker configs behind them.

A topic that does not set a config takes the brokers': `retention.ms` is `log.retention.ms`, or else
`log.retention.minutes` times 60,000, or else `log.retention.hours` times 3,600,000. The order is Kafka's
(ServerTopicConfigSynonyms).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from klamm.setting import (
    LONG_MAX,
    Setting,
    Synonym,
    UpdateMode,
    Validator,
    between,
    boolean,
    definitions,
    double,
    integer,
    list_matching,
    list_of,
    long,
    one_of,
    text,
    text_list,
)

HOUR_MS = 60 * 60 * 1000
DAY_MS = 24 * HOUR_MS
MIB = 1024 * 1024


_GZIP_LEVELS = Validator(
    expected="-1 or 1 to 9", accepts=lambda value: value == -1 or (isinstance(value, int) and 1 <= value <= 9)
)
_THROTTLED = list_matching(r"\*|[0-9]+:[0-9]+", "* or a list of partition:broker")

_HOLDING_GROUPS_MAX = 100
_HOLDING_GROUPS = Validator(
    expected=f"* or a list of at most {_HOLDING_GROUPS_MAX} different group ids",
    accepts=lambda value: len(set(value)) == len(value) <= _HOLDING_GROUPS_MAX,
)
_NO_TIERED_STORAGE = Validator(expected="false: there is no tiered storage", accepts=lambda value: value is False)
_NO_SHARE_GROUPS = Validator(expected="false: there are no share groups", accepts=lambda value: value is False)
_DECOMPRESSED_MAX_BYTES = 2_147_483_639
"""Kafka's default, which is the maximum length of an array in Java."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """The settings of one topic. If the topic does not set one with synonyms, the brokers' value applies."""

    cleanup_policy: tuple[str, ...] = text_list(
        ("delete",),
        valid=list_of("delete", "compact"),
        synonyms=(Synonym("log.cleanup.policy"),),
        doc="What happens to old records. delete removes old segments by age and size. compact keeps"
        " only the last record of each key. A topic can have both policies.",
    )
    retention_ms: int = long(
        7 * DAY_MS,
        at_least=-1,
        synonyms=(
            Synonym("log.retention.ms"),
            Synonym("log.retention.minutes", 60_000),
            Synonym("log.retention.hours", HOUR_MS),
        ),
        doc="With cleanup.policy delete, the broker deletes a segment when its newest record is older"
        " than this. -1: no limit by age.",
    )
    retention_bytes: int = long(
        -1,
        synonyms=(Synonym("log.retention.bytes"),),
        doc="With cleanup.policy delete, the broker deletes the oldest segments while a partition holds"
        " more bytes than this. -1: no limit by size.",
    )
    retention_hold_groups: tuple[str, ...] = text_list(
        (),
        valid=_HOLDING_GROUPS,
        doc="The groups that retention waits for: a list of group ids, or * for every group that has offsets in"
        " the topic. Retention does not delete a segment until these groups have committed past it, or until"
        " retention.hold.max.ms or retention.hold.max.bytes is reached. A group that is named and has not committed"
        " an offset holds every record. A group that a user deletes releases its hold. Empty: retention waits for no"
        " group. Klamm's own setting; Kafka has none.",
    )
    retention_hold_max_ms: int = long(
        14 * DAY_MS,
        at_least=-1,
        doc="With retention.hold.groups, the broker deletes a segment when its newest record is older than this,"
        " even if a group has not read it. At least retention.ms. -1: no limit by age. Klamm's own setting; Kafka"
        " has none.",
    )
    retention_hold_max_bytes: int = long(
        -1,
        at_least=-1,
        doc="With retention.hold.groups, the broker deletes the oldest of the segments that retention waits for while"
        " a partition holds more bytes than this, even if a group has not read them. At least retention.bytes. -1:"
        " no limit by size. Klamm's own setting; Kafka has none.",
    )
    delete_retention_ms: int = long(
        DAY_MS,
        at_least=0,
        synonyms=(Synonym("log.cleaner.delete.retention.ms"),),
        doc="How long compaction keeps a tombstone, so that a consumer that reads from the start still"
        " sees the deletion.",
    )
    min_compaction_lag_ms: int = long(
        0,
        at_least=0,
        synonyms=(Synonym("log.cleaner.min.compaction.lag.ms"),),
        doc="Records younger than this are not compacted.",
    )
    max_compaction_lag_ms: int = long(
        LONG_MAX,
        at_least=1,
        synonyms=(Synonym("log.cleaner.max.compaction.lag.ms"),),
        doc="The longest time that a record waits for compaction. Older records are compacted even if"
        " min.cleanable.dirty.ratio is not reached.",
    )
    min_cleanable_dirty_ratio: float = double(
        0.5,
        valid=between(0, 1),
        synonyms=(Synonym("log.cleaner.min.cleanable.ratio"),),
        doc="The broker compacts a log when at least this fraction of it has not been compacted yet.",
    )
    file_delete_delay_ms: int = long(
        60_000,
        at_least=0,
        synonyms=(Synonym("log.segment.delete.delay.ms"),),
        doc="How long the broker keeps a deleted file on disk, because reads may still use it.",
    )
    segment_bytes: int = integer(
        1024 * MIB,
        at_least=MIB,
        synonyms=(Synonym("log.segment.bytes"),),
        doc="The largest size of a segment file. Retention deletes whole segments only.",
    )
    segment_ms: int = long(
        7 * DAY_MS,
        at_least=1,
        synonyms=(
            Synonym("log.roll.ms"),
            Synonym("log.roll.hours", HOUR_MS),
        ),
        doc="The broker closes a segment when its first record is older than this, even if the segment is not full.",
    )
    segment_jitter_ms: int = long(
        0,
        at_least=0,
        synonyms=(
            Synonym("log.roll.jitter.ms"),
            Synonym("log.roll.jitter.hours", HOUR_MS),
        ),
        doc="The broker subtracts a random time of at most this from segment.ms, so that partitions do"
        " not all roll segments at once.",
    )
    segment_index_bytes: int = integer(
        10 * MIB,
        at_least=4,
        synonyms=(Synonym("log.index.size.max.bytes"),),
        doc="The largest size of each index file of a segment. When an index is full, the broker closes the segment.",
    )
    index_interval_bytes: int = integer(
        4_096,
        at_least=0,
        synonyms=(Synonym("log.index.interval.bytes"),),
        doc="The number of bytes of the log between two entries of its index.",
    )
    preallocate: bool = boolean(
        False,
        synonyms=(Synonym("log.preallocate"),),
        doc="Whether the broker allocates the whole file of a new segment on disk at once.",
    )
    flush_messages: int = long(
        LONG_MAX,
        at_least=1,
        synonyms=(Synonym("log.flush.interval.messages"),),
        doc="The broker calls fsync on the log after this many records. By default, the operating"
        " system flushes the log, and replicas protect the records.",
    )
    flush_ms: int = long(
        LONG_MAX,
        at_least=0,
        synonyms=(
            Synonym("log.flush.interval.ms"),
            Synonym("log.flush.scheduler.interval.ms"),
        ),
        doc="The broker calls fsync on the log when a record has waited this long for it.",
    )
    max_message_bytes: int = integer(
        1_048_588,
        at_least=0,
        synonyms=(Synonym("message.max.bytes"),),
        doc="The largest record batch that the broker accepts, as compressed by the producer.",
    )
    compression_type: str = text(
        "producer",
        valid=one_of("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        synonyms=(Synonym("compression.type"),),
        doc="How the broker stores batches. producer keeps the producer's compression. With any other"
        " value, the broker recompresses the batches that have another compression.",
    )
    compression_gzip_level: int = integer(
        -1,
        valid=_GZIP_LEVELS,
        synonyms=(Synonym("compression.gzip.level"),),
        doc="The compression level if compression.type is gzip. -1 is the default of the library.",
    )
    compression_lz4_level: int = integer(
        9,
        at_least=1,
        at_most=17,
        synonyms=(Synonym("compression.lz4.level"),),
        doc="The compression level if compression.type is lz4.",
    )
    compression_zstd_level: int = integer(
        3,
        at_least=-131_072,
        at_most=22,
        synonyms=(Synonym("compression.zstd.level"),),
        doc="The compression level if compression.type is zstd.",
    )
    message_timestamp_type: str = text(
        "CreateTime",
        valid=one_of("CreateTime", "LogAppendTime"),
        synonyms=(Synonym("log.message.timestamp.type"),),
        doc="Whether the timestamp of a record is the producer's (CreateTime) or the time when the"
        " leader appends it (LogAppendTime).",
    )
    message_timestamp_before_max_ms: int = long(
        LONG_MAX,
        at_least=0,
        synonyms=(Synonym("log.message.timestamp.before.max.ms"),),
        doc="With CreateTime, the broker rejects a record whose timestamp is further in the past than this.",
    )
    message_timestamp_after_max_ms: int = long(
        HOUR_MS,
        at_least=0,
        synonyms=(Synonym("log.message.timestamp.after.max.ms"),),
        doc="With CreateTime, the broker rejects a record whose timestamp is further in the future than this.",
    )
    min_insync_replicas: int = integer(
        1,
        at_least=1,
        synonyms=(Synonym("min.insync.replicas"),),
        doc="The broker rejects a produce request with acks=all while fewer replicas than this are in sync.",
    )
    unclean_leader_election_enable: bool = boolean(
        False,
        synonyms=(Synonym("unclean.leader.election.enable"),),
        doc="Whether a replica that is not in sync may become the leader if no in-sync replica can."
        " Acknowledged records can then be lost.",
    )
    unclean_recovery_strategy: str = text(
        "Balanced",
        valid=one_of("Balanced", "Aggressive", "None"),
        synonyms=(Synonym("unclean.recovery.strategy"),),
        doc="How the controller elects a leader when every replica that was in sync may have lost"
        " records (KIP-966). It elects the replica with the most complete log. Balanced: all"
        " replicas that were in sync must report their logs first. Aggressive: only the live ones"
        " must, even if a replica with every record may come back (as with"
        " unclean.leader.election.enable). None: no replica leads until an administrator elects a"
        " leader.",
    )
    leader_replication_throttled_replicas: tuple[str, ...] = text_list(
        (),
        valid=_THROTTLED,
        doc="Replicas whose replication is throttled on the leader's side, as partition:broker, or * for all replicas.",
    )
    follower_replication_throttled_replicas: tuple[str, ...] = text_list(
        (),
        valid=_THROTTLED,
        doc="Replicas whose replication is throttled on the follower's side, as partition:broker, or *"
        " for all replicas.",
    )
    remote_storage_enable: bool = boolean(
        False, valid=_NO_TIERED_STORAGE, doc="Whether old segments move to remote storage; only false is possible."
    )
    remote_log_copy_disable: bool = boolean(False, doc="Without effect: there is no remote storage.")
    remote_log_delete_on_disable: bool = boolean(False, doc="Without effect: there is no remote storage.")
    local_retention_ms: int = long(
        -2,
        at_least=-2,
        doc="Without effect: there is no remote storage, so everything is local and retention.ms decides.",
    )
    local_retention_bytes: int = long(
        -2,
        at_least=-2,
        doc="Without effect: there is no remote storage, so everything is local and retention.bytes decides.",
    )
    remote_copy_lag_ms: int = long(0, at_least=-1, doc="Without effect: there is no remote storage.")
    remote_copy_lag_bytes: int = long(-1, at_least=-1, doc="Without effect: there is no remote storage.")
    max_decompressed_message_bytes: int = integer(
        _DECOMPRESSED_MAX_BYTES,
        at_least=1,
        synonyms=(Synonym("max.decompressed.message.bytes"),),
        doc="The largest size of a record in a compressed batch, after decompression. The broker refuses batches with a"
        " larger record. Stored records are read whatever their size. All records of a batch together have at most"
        " 2147483639 bytes.",
    )
    errors_deadletterqueue_group_enable: bool = boolean(
        False,
        valid=_NO_SHARE_GROUPS,
        doc="Whether share groups may write to this topic the records that they could not deliver. Only"
        " false is possible.",
    )


TOPIC_CONFIGS: Mapping[str, Setting] = {
    name: setting._replace(update_mode=UpdateMode.CLUSTER_WIDE) for name, setting in definitions(TopicConfig).items()
}
SYNONYMS: Mapping[str, tuple[Synonym, ...]] = {
    name: setting.synonyms for name, setting in TOPIC_CONFIGS.items() if setting.synonyms
}
"""The broker configs that each topic config falls back to. The first one that is set applies."""
