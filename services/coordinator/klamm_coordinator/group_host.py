"""A shard of `__consumer_offsets` in its shell."""

from __future__ import annotations

import random
from typing import Any

from klamm.records import BatchHeader, Buffer
from klamm_coordinator.group.messages import Heartbeat
from klamm_coordinator.io.log_link import LogLink
from klamm_coordinator.settings import GroupSettings
from klamm_coordinator.shard.replayer import Replayer
from klamm_coordinator.shard.shard import Shard
from klamm_coordinator.shard_host import ShardHost
from klamm_server.clock import Clock


class GroupHost(ShardHost[Shard]):
    """See `ShardHost`."""

    def __init__(
        self, number: int, link: LogLink, *, settings: GroupSettings, clock: Clock, rng: random.Random
    ) -> None:
        self._settings = settings
        super().__init__(number, link, pending_writes_max=settings.pending_writes_max, clock=clock, rng=rng)

    def _begin_load(self) -> _GroupLoading:
        return _GroupLoading(Shard(self._settings, self._rng))

    def _passes_when_full(self, request: Any) -> bool:
        # A slow log would cost every member its session.
        return isinstance(request, Heartbeat)


class _GroupLoading:
    def __init__(self, core: Shard) -> None:
        self.core = core
        self._replayer = Replayer(core.state)

    def replay_batch(self, buffer: Buffer, position: int, header: BatchHeader) -> None:
        self._replayer.replay_batch(buffer, position, header)

    def story(self) -> str:
        state = self.core.state
        groups = f"groups={len(state.groups)} consumer_groups={len(state.consumer_groups)}"
        return f"{groups} offsets={state.offsets.count()} skipped={self._replayer.skipped_count}"
