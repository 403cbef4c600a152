"""Looks at all groups of this coordinator every few seconds.

A look takes samples of committed offsets, generations and ends of partitions, from which the rates are computed. It
asks the leaders for unread records, for the metrics. It tells each shard which logs begin after a committed offset, so
that the shard counts the loss.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from klamm.errors import BrokerError
from klamm.model import TopicPartition
from klamm_coordinator.group_shard.events import LogStart, LogStartsFound
from klamm_coordinator.group_shard.rules import GroupRules
from klamm_coordinator.io.shard_host import ShardHost
from klamm_coordinator.io.shards import Shards
from klamm_coordinator.io.unread_records import Position, UnreadAsker
from klamm_coordinator.lag.group_lag import Committed, PartitionLag, Unread, partition_lag
from klamm_coordinator.lag.histories import GroupHistories
from klamm_server.metrics.instruments import SERIES_MAX
from klamm_server.runtime.clock import Clock
from klamm_server.runtime.sliced_work import map_in_slices

OFFSETS_PER_TURN: Final = 1_000
LOSSES_PER_STEP: Final = 500
"""The most losses that a shard counts in one step."""
REST_FACTOR: Final = 10
"""After a look, the watch rests at least this many times as long as the look took. So the looks at a hundred thousand
offsets take a tenth of the time of a coordinator and its brokers at most."""

Watched = tuple[str, TopicPartition, Committed]
"""A group, a partition, and the offset that the group has committed there."""


class GroupWatch:
    """Looks at the groups of `shards`. `interval_ms` is the time from the end of a look to the next one."""

    def __init__(self, shards: Shards[GroupRules], asker: UnreadAsker, clock: Clock, *, interval_ms: int) -> None:
        self.histories = GroupHistories()
        self._shards = shards
        self._asker = asker
        self._clock = clock
        self._interval_ms = interval_ms
        self._lags: list[tuple[str, PartitionLag]] = []

    def lags(self) -> Iterator[tuple[str, PartitionLag]]:
        """Yields the group and its lag for the offsets of the newest look, as many as metrics may have. Safe to
        call from another thread."""
        return iter(self._lags)

    async def run(self) -> None:
        """Looks at the groups again and again."""
        pause_ms = self._interval_ms
        while True:
            await asyncio.sleep(pause_ms / 1000)
            began_ms = self._clock.monotonic_ms()
            await self.look()
            pause_ms = max(self._interval_ms, REST_FACTOR * (self._clock.monotonic_ms() - began_ms))

    async def look(self) -> None:
        """Looks at all groups once."""
        watched = await self._watched()
        answers = await self._asker.ask(map(_position, watched))
        now_ms = self._clock.wall_ms()
        for (partition, _), unread in answers.items():
            if not unread.error_code:
                self.histories.ends.note(partition, now_ms, unread.high_watermark)
        # Readings shows no more series than that.
        shown = watched[:SERIES_MAX]
        found = await map_in_slices(lambda entry: self._lag_of(entry, answers[_position(entry)]), shown)
        self._lags = [lag for lag in found if lag is not None]
        self._count_losses(watched, answers)

    async def _watched(self) -> list[Watched]:
        """Returns all committed offsets, and adds samples of them and of the groups' generations."""
        watched: list[Watched] = []
        now_ms = self._clock.wall_ms()
        for _, rules in self._loaded():
            for group_id, generation in rules.generations():
                self.histories.generations.note(group_id, now_ms, generation)
            offsets = rules.state.offsets.committed()
            while part := list(islice(offsets, OFFSETS_PER_TURN)):
                for group_id, partition, value in part:
                    watched.append((group_id, partition, Committed(value.offset, value.commit_timestamp_ms)))
                    self.histories.committed.note((group_id, partition), value.commit_timestamp_ms, value.offset)
                await asyncio.sleep(0)
        return watched

    def _loaded(self) -> Iterator[tuple[ShardHost[GroupRules], GroupRules]]:
        """Yields the loaded shards. The caller may wait after each. Skips shards that were released by then."""
        for host in self._shards:
            if (shard := host.loaded_shard) is not None:
                yield host, shard.rules

    def _lag_of(self, watched: Watched, unread: Unread) -> tuple[str, PartitionLag] | None:
        group_id, partition, committed = watched
        try:
            return group_id, self.lag(group_id, partition, committed, unread)
        except BrokerError:  # another coordinator owns the shard now
            return None

    def lag(
        self, group_id: str, partition: TopicPartition, committed: Committed | None, unread: Unread
    ) -> PartitionLag:
        """Returns the lag of a group in a partition, with the rates that the histories know. Raises
        NotCoordinatorError."""
        lost = self._shards.of_key(group_id).rules.state.lost.of_group(group_id).get(partition)
        return partition_lag(
            group_id,
            partition,
            committed,
            unread,
            counted_lost=0 if lost is None else lost.lost_count,
            counted_to=0 if lost is None else lost.counted_to,
            histories=self.histories,
            now_ms=self._clock.wall_ms(),
        )

    async def on_log_starts(self, starts: Mapping[TopicPartition, int]) -> None:
        """Lets the shards count what groups lost because these logs begin later now."""
        for host, rules in self._loaded():
            offsets = rules.state.offsets
            found = [
                LogStart(group_id, partition, starts[partition])
                for group_id in offsets.group_ids()
                for partition in starts.keys() & offsets.of_group(group_id).keys()
            ]
            _count(host, found)
            await asyncio.sleep(0)

    def _count_losses(self, watched: Iterable[Watched], answers: Mapping[Position, Unread]) -> None:
        """Lets the shards count what groups lost whose offset lies before the start of a log."""
        found: defaultdict[ShardHost[GroupRules], list[LogStart]] = defaultdict(list)
        for entry in watched:
            group_id, partition, committed = entry
            start_offset = answers[_position(entry)].log_start_offset
            if 0 <= committed.offset < start_offset:
                try:
                    found[self._shards.of_key(group_id)].append(LogStart(group_id, partition, start_offset))
                except BrokerError:  # another coordinator owns the shard now
                    continue
        for host, starts in found.items():
            _count(host, starts)


def _count(host: ShardHost[GroupRules], found: Sequence[LogStart]) -> None:
    """Passes starts of logs to a shard. The shard compares them with the offsets of now."""
    for first in range(0, len(found), LOSSES_PER_STEP):
        host.step(LogStartsFound(found=tuple(found[first : first + LOSSES_PER_STEP])))


def _position(watched: Watched) -> Position:
    return watched[1], watched[2].offset
