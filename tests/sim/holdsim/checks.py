"""The properties of retention that waits for groups.

read        a leader deletes a segment only if a bound is reached, or if every group of its hold had committed past the
            segment at some time since the leader began to ask. A group that a user deleted needs nothing, until it
            commits again
follower    a replica that does not lead starts where some leader's log started, or before. It deletes nothing by itself
bounded     after a check of a leader, no bound of the hold is exceeded
released    without faults, everything that has expired and that no group needs is deleted on every replica
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Literal

from klamm_broker.log.cleaning.hold_groups import ALL_GROUPS
from klamm_broker.log.log_config import LogConfig
from tests.sim.holdsim.sim_log import SimSegment

DELETED: Final = "deleted"
State = int | Literal["deleted"] | None
"""The offset of a group in the partition, None for a group without one, or `DELETED` after a user has deleted it."""


@dataclass(slots=True)
class GroupHistory:
    """The states of one group, each with the time at which it began."""

    changes: list[tuple[int, State]] = field(default_factory=lambda: [(0, None)])

    def set(self, now_ms: int, state: State) -> None:
        self.changes.append((now_ms, state))

    @property
    def state(self) -> State:
        return self.changes[-1][1]

    def since(self, begin_ms: int) -> list[State]:
        """Returns the states that the group had at `begin_ms` and later."""
        earlier = [offset for time_ms, offset in self.changes if time_ms < begin_ms]
        return [*earlier[-1:], *(offset for time_ms, offset in self.changes if time_ms >= begin_ms)]


class Checks:
    """Checks every deletion against what the groups have really committed."""

    def __init__(self) -> None:
        self.groups: dict[str, GroupHistory] = {}
        self.leaders_start = 0
        """The largest log start offset that a leader or DeleteRecords has set."""
        self.deleted_count = 0

    def state_of(self, group_id: str) -> State:
        return self.groups.get(group_id, GroupHistory()).state

    def on_change(self, group_id: str, now_ms: int, state: State) -> None:
        self.groups.setdefault(group_id, GroupHistory()).set(now_ms, state)

    def on_leader_deleted(
        self,
        deleted: Iterable[SimSegment],
        left: list[SimSegment],
        config: LogConfig,
        *,
        start_offset: int,
        asked_ms: int,
        now_ms: int,
    ) -> None:
        """Checks the segments that a leader has deleted, oldest first. `left` are those that it has kept."""
        rest = [*deleted, *left]
        while len(rest) > len(left):
            segment = rest.pop(0)
            self.deleted_count += 1
            if segment.next_offset > start_offset and not self._is_over(segment, rest, config, now_ms):
                self._check_read(segment, config, asked_ms)
            self.leaders_start = max(self.leaders_start, segment.next_offset)

    def on_delete_records(self, offset: int) -> None:
        self.leaders_start = max(self.leaders_start, offset)

    def check_follower(self, broker_id: int, start_offset: int, first_offset: int) -> None:
        """Checks the start of the log of a replica, and its first segment."""
        assert start_offset <= self.leaders_start, (
            f"follower: broker {broker_id} starts at {start_offset}, no leader started after {self.leaders_start}"
        )
        assert first_offset <= start_offset, (
            f"follower: broker {broker_id} starts at {start_offset}, its segments begin at {first_offset}"
        )

    def check_bounds(self, segments: list[SimSegment], config: LogConfig, now_ms: int) -> None:
        """Checks that retention and a bound do not both ask for the deletion of the first segment."""
        first, rest = segments[0], segments[1:]
        if not rest:
            return  # the active segment may be empty
        is_expired = self._over(first, rest, now_ms, config.retention_ms, config.retention_bytes)
        assert not (is_expired and self._is_over(first, rest, config, now_ms)), (
            f"bounded: the segment at {first.base_offset} is left, {config.retention_hold_max_ms} ms and"
            f" {config.retention_hold_max_bytes} bytes are exceeded"
        )

    def _check_read(self, segment: SimSegment, config: LogConfig, asked_ms: int) -> None:
        named = [group_id for group_id in config.retention_hold_groups if group_id != ALL_GROUPS]
        for group_id in named:
            states = self.groups.get(group_id, GroupHistory()).since(asked_ms)
            if DELETED not in states:
                self._check_past(segment, group_id, states)
        if ALL_GROUPS in config.retention_hold_groups:
            for group_id, history in self.groups.items():
                states = history.since(asked_ms)
                if None not in states and DELETED not in states:
                    self._check_past(segment, group_id, states)

    def _check_past(self, segment: SimSegment, group_id: str, states: list[State]) -> None:
        highest = max((state for state in states if isinstance(state, int)), default=-1)
        assert highest >= segment.next_offset, (
            f"read: the segment {segment.base_offset} to {segment.next_offset} was deleted, group {group_id} had"
            f" committed {states}"
        )

    def _is_over(self, segment: SimSegment, rest: list[SimSegment], config: LogConfig, now_ms: int) -> bool:
        """Returns True if a bound of the hold is reached for the oldest segment."""
        return self._over(segment, rest, now_ms, config.retention_hold_max_ms, config.retention_hold_max_bytes)

    @staticmethod
    def _over(segment: SimSegment, rest: list[SimSegment], now_ms: int, max_ms: int, max_bytes: int) -> bool:
        is_too_old = max_ms >= 0 and segment.indexes.largest.timestamp_ms < now_ms - max_ms
        is_too_large = 0 <= max_bytes <= sum(one.files.size_bytes for one in rest)
        return is_too_old or is_too_large
