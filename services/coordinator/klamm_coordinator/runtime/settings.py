"""The settings that every kind of shard obeys; each kind adds its own.

`CoordinatorConfig` inherits them all: rules are given the configuration itself.

A field without a definition is no setting: only tests have it otherwise.
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
