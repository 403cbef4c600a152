"""The settings of a topic, as its logs use them.

Names, types and defaults are those of `klamm_server.config.topic_configs`. The code that alters configs decides whether
a value may be set. Values that arrive here were accepted, so a bad value raises a ConfigError that names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Self

from klamm.setting import LONG_MAX, definitions, parse
from klamm_server.config.topic_configs import TopicConfig

NO_LIMIT_MS: Final = LONG_MAX
"""The value Long.MAX_VALUE, which means "never" in Kafka's `.ms` and `.messages` configs."""
CREATE_TIME: Final = "CreateTime"
LOG_APPEND_TIME: Final = "LogAppendTime"
"""The values of `message.timestamp.type`: the producer's clock or the broker's clock sets a record's timestamp."""


class LogConfig(TopicConfig):
    """The effective settings of one topic, and values computed from them, which every append reads."""

    __slots__ = ("is_compacted", "is_created", "is_dated", "is_held", "is_plain", "roll_ms")

    is_compacted: bool
    is_created: bool
    """True if the producer's clock sets the timestamps."""
    is_dated: bool
    """True if a timestamp of the producer's clock may be too old."""
    is_held: bool
    """True if retention waits for groups (`retention.hold.groups`)."""
    is_plain: bool
    """True if records are stored as they come: with the producer's timestamps, whatever their age, with its
    compression, and also without keys."""
    roll_ms: int
    """The time after which a segment is rolled. Compacted topics also roll after `max.compaction.lag.ms`, because an
    active segment cannot be cleaned."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        is_compacted = "compact" in self.cleanup_policy
        is_created = self.message_timestamp_type == CREATE_TIME
        is_dated = is_created and self.message_timestamp_before_max_ms != NO_LIMIT_MS
        put = object.__setattr__
        put(self, "is_compacted", is_compacted)
        put(self, "is_created", is_created)
        put(self, "is_dated", is_dated)
        put(self, "is_held", bool(self.retention_hold_groups) and "delete" in self.cleanup_policy)
        put(
            self,
            "is_plain",
            is_created and not is_dated and not is_compacted and self.compression_type == "producer",
        )
        put(self, "roll_ms", min(self.segment_ms, self.max_compaction_lag_ms) if is_compacted else self.segment_ms)

    @classmethod
    def from_configs(cls, configs: Mapping[str, str]) -> Self:
        """Parses settings by Kafka's dotted names. Ignores names that are not settings of topics. Missing settings get
        their defaults."""
        known = definitions(cls)
        return cls(**parse(cls, {name: text for name, text in configs.items() if name in known}))
