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
"""Long.MAX_VALUE: how Kafka spells "never" in a `.ms` or `.messages` config."""
CREATE_TIME: Final = "CreateTime"
LOG_APPEND_TIME: Final = "LogAppendTime"
"""Values of `message.timestamp.type`: whose clock a record's timestamp is."""


class LogConfig(TopicConfig):
    """One topic's effective settings."""

    __slots__ = ()

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def roll_ms(self) -> int:
        """After how long a segment is rolled: `max.compaction.lag.ms` cannot be kept in the active one."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.is_compacted else self.segment_ms

    @classmethod
    def from_configs(cls, configs: Mapping[str, str]) -> Self:
        """Reads Kafka's dotted names; names that are no topic's are ignored, missing ones take the default."""
        known = definitions(cls)
        return cls(**parse(cls, {name: text for name, text in configs.items() if name in known}))
