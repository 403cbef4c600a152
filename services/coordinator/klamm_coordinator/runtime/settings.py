"""The settings of every kind of shard. Each kind of shard adds its own settings.

`CoordinatorConfig` inherits all of these classes, and the rules get the configuration itself. A field with a plain
default value cannot be configured. Only tests change its value.
"""

from __future__ import annotations

from dataclasses import dataclass

from klamm.setting import integer

MINUTE_MS = 60_000


@dataclass(frozen=True, kw_only=True)
class ShardSettings:
    """The settings of shards of any kind."""

    pending_writes_max: int = integer(
        10_000,
        at_least=1,
        doc="The most writes per partition that wait for their append. The coordinator rejects further"
        " writes with COORDINATOR_NOT_AVAILABLE.",
        name="coordinator.pending.writes.max",
    )
