"""The settings of a topic, as its logs use them.

Names, types and defaults are those of `klamm_server.config.topic_configs`. The code that alters configs decides whether
a value may be set. Values that arrive here were accepted, so a bad value raises a ConfigError that names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Self

from klamm.setting import LONG_MAX, definitions, parse
from klamm_server.config.topic_configs import TopicConfig

NO_LIMIT_MS: Final = LONG_MAX
"""The value Long.MAX_VALUE, which means "never" in Kafka's `.ms` and `.messages` configs."""
CREATE_TIME: Final = "CreateTime"
LOG_APPEND_TIME: Final = "LogAppendTime"
"""The values of `message.timestamp.type`: the producer's clock or the broker's clock sets a record's timestamp."""


class LogConfig(TopicConfig):
    """The effective settings of one topic."""

    __slots__ = ()

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def roll_ms(self) -> int:
        """The time after which a segment is rolled. Compacted topics also roll after `max.compaction.lag.ms`, because
        an active segment cannot be cleaned."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.is_compacted else self.segment_ms

    @classmethod
    def from_configs(cls, configs: Mapping[str, str]) -> Self:
        """Parses settings by Kafka's dotted names. Ignores names that are not settings of topics. Missing settings get
        their defaults."""
        known = definitions(cls)
        return cls(**parse(cls, {name: text for name, text in configs.items() if name in known}))
