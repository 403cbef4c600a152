"""Fetches the committed offsets of groups, and the offsets between which partitions can be read.

The answers come one after another, and groups and logs move meanwhile. Their order keeps a group from looking worse
than it is: the end of a log is asked after its start, and the offset of a group is asked again if it seems to lie
before the start. A consumer that commits and then deletes what it read would seem to have lost it otherwise.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from klamm.errors import GroupIdNotFoundError
from klamm.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition
from klamm_cli.status.unread_records import LogBounds

if TYPE_CHECKING:
    from klamm import Admin


@dataclass(frozen=True, slots=True, kw_only=True)
class Positions:
    """The committed offsets of groups, and the bounds of the partitions."""

    committed: Mapping[str, Mapping[TopicPartition, int]]
    """The committed offsets by group and partition. A group that does not exist any more is left out."""
    bounds: Mapping[TopicPartition, LogBounds]
    """The bounds of each partition that has a leader."""


def read_positions(
    admin: Admin,
    group_ids: Iterable[str],
    led: Collection[TopicPartition],
    *,
    also: Iterable[TopicPartition] = (),
    timeout_ms: int | None = None,
) -> Positions:
    """Returns the offsets of the groups, and the bounds of their partitions and of those in `also`.

    `led` names the partitions with a leader. The bounds of other partitions are unknown. Raises KlammError."""
    committed = {group_id: _committed(admin, group_id, timeout_ms) for group_id in group_ids}
    wanted = {tp for offsets in committed.values() for tp in offsets or ()}.union(also).intersection(led)
    starts = _offsets(admin, wanted, EARLIEST_TIMESTAMP, timeout_ms)
    for group_id, offsets in committed.items():
        if any(0 <= offset < starts.get(tp, 0) for tp, offset in (offsets or {}).items()):
            committed[group_id] = _committed(admin, group_id, timeout_ms)
    ends = _offsets(admin, wanted, LATEST_TIMESTAMP, timeout_ms)
    return Positions(
        committed={group_id: offsets for group_id, offsets in committed.items() if offsets is not None},
        bounds={tp: LogBounds(starts[tp], end) for tp, end in ends.items() if tp in starts},
    )


def _committed(admin: Admin, group_id: str, timeout_ms: int | None) -> dict[TopicPartition, int] | None:
    """Returns the offsets of a group, or None if the group does not exist any more."""
    try:
        offsets = admin.list_group_offsets(group_id, timeout_ms=timeout_ms)
    except GroupIdNotFoundError:
        return None
    return {tp: one.offset for tp, one in offsets.items()}


def _offsets(
    admin: Admin, tps: Iterable[TopicPartition], timestamp_ms: int, timeout_ms: int | None
) -> dict[TopicPartition, int]:
    found = admin.list_offsets(dict.fromkeys(sorted(tps), timestamp_ms), timeout_ms=timeout_ms)
    return {tp: one.offset for tp, one in found.items()}
