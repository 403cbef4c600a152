"""The topic configs the log acts on, as typed values.

Names and defaults are Kafka's (`org.apache.kafka.storage.internals.log.LogConfig`, 4.x). Whether a value
may be set at all is decided where configs are altered; what arrives here was accepted, so a bad value is a
ConfigError naming it.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from klamm.errors import ConfigError

NO_LIMIT_MS = 2**63 - 1
"""Long.MAX_VALUE: how Kafka spells "never" in a `.ms` or `.messages` config."""

_DAY_MS = 24 * 60 * 60 * 1000


class TimestampSource(enum.Enum):
    """`message.timestamp.type`: whose clock a record's timestamp is."""

    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """One topic's effective log settings."""

    segment_bytes: int = 1024**3
    """`segment.bytes`: a segment never grows beyond this, so it also bounds one record set."""
    segment_ms: int = 7 * _DAY_MS
    """`segment.ms`: a segment whose first record is older than this is rolled by the next append."""
    segment_jitter_ms: int = 0
    """`segment.jitter.ms`: at most this is randomly taken off `segment_ms`, so that not all partitions roll
    at once."""
    segment_index_bytes: int = 10 * 1024**2
    """`segment.index.bytes`: upper bound of each index file; a full index rolls the segment."""
    index_interval_bytes: int = 4096
    """`index.interval.bytes`: log bytes between two index entries."""
    retention_ms: int = 7 * _DAY_MS
    """`retention.ms`; negative: no limit."""
    retention_bytes: int = -1
    """`retention.bytes` of one partition; negative: no limit."""
    max_message_bytes: int = 1024**2 + 12
    """`max.message.bytes`: largest batch a producer may send."""
    compression_type: str = "producer"
    """`compression.type`: `producer` keeps what was sent; anything else re-compresses batches that differ."""
    timestamp_source: TimestampSource = TimestampSource.CREATE_TIME
    """`message.timestamp.type`."""
    timestamp_before_max_ms: int = NO_LIMIT_MS
    """`message.timestamp.before.max.ms`: how far a CreateTime may lie in the past."""
    timestamp_after_max_ms: int = 60 * 60 * 1000
    """`message.timestamp.after.max.ms`: how far a CreateTime may lie in the future (one hour since Kafka
    4.0)."""
    file_delete_delay_ms: int = 60_000
    """`file.delete.delay.ms`: between renaming a file to `.deleted` and removing it."""
    flush_messages: int = NO_LIMIT_MS
    """`flush.messages`: fsync inside the append once this many records are unflushed."""
    flush_ms: int = NO_LIMIT_MS
    """`flush.ms`: fsync in the background once the oldest unflushed record has waited this long."""
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    """`cleanup.policy`: `delete`, `compact`, both or neither."""
    delete_retention_ms: int = _DAY_MS
    """`delete.retention.ms`: how long a tombstone stays after the compaction that first saw it."""
    min_cleanable_dirty_ratio: float = 0.5
    """`min.cleanable.dirty.ratio`: part of a log that must not be compacted yet before it is."""
    min_compaction_lag_ms: int = 0
    """`min.compaction.lag.ms`: records younger than this are not compacted."""
    max_compaction_lag_ms: int = NO_LIMIT_MS
    """`max.compaction.lag.ms`: records older than this are, whatever the ratio."""
    min_insync_replicas: int = 1
    """`min.insync.replicas`."""

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def roll_ms(self) -> int:
        """After how long a segment is rolled: `max.compaction.lag.ms` cannot be kept in the active one."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.is_compacted else self.segment_ms

    @classmethod
    def from_configs(cls, configs: Mapping[str, str]) -> LogConfig:
        """From Kafka's dotted names; names that are not the log's are ignored, missing ones take the
        default."""
        values: dict[str, object] = {}
        for name, text in configs.items():
            if name in _INTEGERS:
                values[_INTEGERS[name]] = _integer(name, text)
        if (ratio := configs.get("min.cleanable.dirty.ratio")) is not None:
            values["min_cleanable_dirty_ratio"] = _ratio("min.cleanable.dirty.ratio", ratio)
        if (kind := configs.get("message.timestamp.type")) is not None:
            values["timestamp_source"] = _timestamp_source(kind)
        if (compression := configs.get("compression.type")) is not None:
            values["compression_type"] = _compression(compression)
        if (policy := configs.get("cleanup.policy")) is not None:
            values["cleanup_policy"] = _cleanup_policy(policy)
        return cls(**values)  # type: ignore[arg-type]  # the keys are this class's own field names


_INTEGERS = {
    "segment.bytes": "segment_bytes",
    "segment.ms": "segment_ms",
    "segment.jitter.ms": "segment_jitter_ms",
    "segment.index.bytes": "segment_index_bytes",
    "index.interval.bytes": "index_interval_bytes",
    "retention.ms": "retention_ms",
    "retention.bytes": "retention_bytes",
    "max.message.bytes": "max_message_bytes",
    "message.timestamp.before.max.ms": "timestamp_before_max_ms",
    "message.timestamp.after.max.ms": "timestamp_after_max_ms",
    "file.delete.delay.ms": "file_delete_delay_ms",
    "flush.messages": "flush_messages",
    "flush.ms": "flush_ms",
    "min.insync.replicas": "min_insync_replicas",
    "delete.retention.ms": "delete_retention_ms",
    "min.compaction.lag.ms": "min_compaction_lag_ms",
    "max.compaction.lag.ms": "max_compaction_lag_ms",
}
_COMPRESSIONS = ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")
_POLICIES = frozenset({"delete", "compact"})


def _integer(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"{name}={text!r}: expected a whole number") from None


def _ratio(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"{name}={text!r}: expected a number from 0 to 1") from None


def _timestamp_source(text: str) -> TimestampSource:
    try:
        return TimestampSource(text)
    except ValueError:
        raise ConfigError(f"message.timestamp.type={text!r}: expected CreateTime or LogAppendTime") from None


def _compression(text: str) -> str:
    if text not in _COMPRESSIONS:
        raise ConfigError(f"compression.type={text!r}: expected one of {', '.join(_COMPRESSIONS)}")
    return text


def _cleanup_policy(text: str) -> frozenset[str]:
    policies = frozenset(part.strip() for part in text.split(",") if part.strip())
    if not policies <= _POLICIES:
        raise ConfigError(f"cleanup.policy={text!r}: expected a list of 'delete' and 'compact'")
    return policies
