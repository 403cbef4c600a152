"""Counts the records that were deleted before a group read them, and keeps the counts.

The coordinator asks the leaders for the starts of their logs every few seconds. A committed offset below the start of
the log means that the records between them are lost for the group. Without a record of that, the loss could not be seen
any more after the group's next commit.

The count goes with the committed offset: when it expires, or when the group or the topic is deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from klamm.model import TopicPartition
from klamm.ordered_set import OrderedSet
from klamm_coordinator.group_shard.events import ForgetLosses, ForgetLossesReply, LogStart
from klamm_coordinator.group_shard.state import GroupShardState
from klamm_coordinator.groups.group_context import GroupContext, NoteFailure
from klamm_coordinator.lag.group_lag import uncounted_loss
from klamm_coordinator.records.lost_records_schema import LostRecordsKey, LostRecordsValue
from klamm_coordinator.records.schemas import GroupRecord, OffsetCommitKey

RECORDS_PER_WRITE: Final = 1_000
"""The most records of one write, so that each batch fits into `max.message.bytes`."""


class Losses:
    """Keeps the records about losses."""

    def __init__(self, state: GroupShardState) -> None:
        self._state = state
        self._orphans: OrderedSet[LostRecordsKey] = OrderedSet()
        """The losses whose offset was deleted since `update`."""

    def start(self, context: GroupContext) -> None:
        """Deletes losses without an offset after the shard was loaded."""
        for key in self._state.lost.all_keys():
            if _partition(key) not in self._state.offsets.of_group(key.group_id):
                self._orphans.add(key)
        self.update(context)

    def count(self, found: Iterable[LogStart], context: GroupContext) -> None:
        """Counts what groups lost. An offset that is being committed counts only afterwards."""
        records = [record for start in found if (record := self._counted(start, context)) is not None]
        for record in records:
            context.note(_story(record))
        _append(records, context)

    def _counted(self, found: LogStart, context: GroupContext) -> GroupRecord | None:
        group_id, partition, start_offset = found
        key = LostRecordsKey(group_id, *partition)
        committed = self._state.offsets.of_group(group_id).get(partition)
        is_undecided = self._state.offsets.is_undecided(group_id, partition) or self._state.lost.is_in_flight(key)
        if committed is None or is_undecided:
            return None
        former = self._state.lost.of_group(group_id).get(partition) or LostRecordsValue(0, 0, 0)
        lost_count = uncounted_loss(committed.offset, start_offset, former.counted_to)
        if not lost_count:
            return None
        return GroupRecord(key, LostRecordsValue(former.lost_count + lost_count, start_offset, context.now.wall_ms))

    def forget(self, request: ForgetLosses, context: GroupContext) -> None:
        """Sets the counts of a group to 0, in all topics or in those that the request names."""
        losses = self._state.lost.of_group(request.group_id)
        forgotten = {
            partition: value
            for partition, value in sorted(losses.items())
            if not request.topics or partition.topic in request.topics
        }
        reply = ForgetLossesReply(lost_count=sum(value.lost_count for value in forgotten.values()))
        records = tuple(
            GroupRecord(LostRecordsKey(request.group_id, *partition), value._replace(lost_count=0))
            for partition, value in forgotten.items()
        )
        if records:
            context.append(records, replies=((request.reply_id, reply),))
        else:
            context.reply(request.reply_id, reply)

    def heed(self, record: GroupRecord) -> None:
        """Notes a record that was replayed, if it deletes an offset with a loss."""
        key, value = record
        if not isinstance(key, OffsetCommitKey) or value is not None:
            return
        if TopicPartition(key.topic, key.partition) in self._state.lost.of_group(key.group_id):
            self._orphans.add(LostRecordsKey(*key))

    def heed_failure(self, records: Iterable[GroupRecord]) -> None:
        """Notes records that were not written. A loss that was to be deleted is deleted again by the next `update`."""
        for key, value in records:
            if isinstance(key, LostRecordsKey) and value is None:
                self._orphans.add(key)

    def update(self, context: GroupContext) -> None:
        """Deletes the losses whose offsets are gone."""
        if self._orphans:
            orphans, self._orphans = self._orphans, OrderedSet()
            _append([GroupRecord(key, None) for key in orphans], context)


def _story(record: GroupRecord) -> str:
    """Returns the line for the program's log about a loss."""
    key, value = record
    assert isinstance(key, LostRecordsKey), record
    assert isinstance(value, LostRecordsValue), record
    return (
        f"retention deleted records before a group read them, group={key.group_id} partition={_partition(key)}"
        f" log_start_offset={value.counted_to} lost={value.lost_count}"
    )


def _partition(key: LostRecordsKey) -> TopicPartition:
    return TopicPartition(key.topic, key.partition)


def _append(records: Sequence[GroupRecord], context: GroupContext) -> None:
    for start in range(0, len(records), RECORDS_PER_WRITE):
        part = tuple(records[start : start + RECORDS_PER_WRITE])
        context.append(part, then=NoteFailure(what=f"{len(part)} counts of lost records"))
