"""Remembers which holds of retention ended because a user deleted their group.

A topic names groups in `retention.hold.groups`. A named group without an offset has not begun to read, and holds every
record. A deleted group has no offset either. So its deletion stores a record for each topic that names it, in the same
writes as the group's tombstones.

The record goes when the group begins again: with its first stored member or committed offset. It also goes when the
topic does not name the group any more, or is deleted. A group whose offsets expire was not deleted by a user, and
still holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from klamm.ordered_set import OrderedSet
from klamm_coordinator.classic.groups import ClassicGroups
from klamm_coordinator.classic.states import ClassicGroupState
from klamm_coordinator.group_shard.state import GroupShardState
from klamm_coordinator.groups.group_context import GroupContext, NoteFailure
from klamm_coordinator.groups.topics import HeldTopics
from klamm_coordinator.kip848.groups import ConsumerGroups
from klamm_coordinator.records.released_hold_schema import ReleasedHoldKey, ReleasedHoldValue
from klamm_coordinator.records.schemas import GroupRecord

RECORDS_PER_WRITE: Final = 1_000
"""The most records of one write, so that each batch fits into `max.message.bytes`."""


class Releases:
    """Keeps the records about released holds. `topics` returns the topics that this coordinator knows now."""

    def __init__(
        self,
        state: GroupShardState,
        classic: ClassicGroups,
        consumers: ConsumerGroups,
        topics: Callable[[], HeldTopics],
    ) -> None:
        self._state = state
        self._classic = classic
        self._consumers = consumers
        self._topics = topics
        self._changed: OrderedSet[str] = OrderedSet()
        """The groups that may have begun again since `update`."""

    def of_group(self, group_id: str) -> Mapping[str, bytes]:
        """Returns the ids of the topics that the group does not hold, by name. A group that exists holds every topic
        that names it."""
        exists = group_id in self._classic.groups or self._consumers.has(group_id) or group_id in self._state
        return {} if exists else self._state.released.of_group(group_id)

    def records_of_deletion(self, group_id: str) -> list[GroupRecord]:
        """Returns the records that a deletion of the group by a user has to store."""
        held = self._topics().held_by(group_id)
        return [
            GroupRecord(ReleasedHoldKey(group_id, topic), ReleasedHoldValue(topic_id))
            for topic, topic_id in sorted(held.items())
        ]

    def start(self, context: GroupContext) -> None:
        """Deletes the records that are out of date after the shard was loaded."""
        self.on_holds_changed(context)

    def on_holds_changed(self, context: GroupContext) -> None:
        """Deletes the records of topics that do not name the group any more, and of groups that have begun again."""
        _append(filter(self._is_outdated, self._state.released.all_keys()), context)

    def heed(self, group_id: str) -> None:
        """Notes that something of the group has changed."""
        if group_id in self._state.released:
            self._changed.add(group_id)

    def heed_failure(self, records: Iterable[GroupRecord]) -> None:
        """Notes records that were not written. The next `update` deletes a record again that was to be deleted."""
        for key, value in records:
            if isinstance(key, ReleasedHoldKey) and value is None:
                self.heed(key.group_id)

    def update(self, context: GroupContext) -> None:
        """Deletes the records of changed groups that are out of date."""
        if self._changed:
            changed, self._changed = self._changed, OrderedSet()
            released = self._state.released.of_group
            keys = (ReleasedHoldKey(group_id, topic) for group_id in changed for topic in released(group_id))
            _append(filter(self._is_outdated, keys), context)

    def _is_outdated(self, key: ReleasedHoldKey) -> bool:
        """Returns True if the group has begun again, or the topic does not name it any more."""
        topic_id = self._state.released.of_group(key.group_id)[key.topic]
        return self._has_begun(key.group_id) or self._topics().held_by(key.group_id).get(key.topic) != topic_id

    def _has_begun(self, group_id: str) -> bool:
        """Returns True if a member or an offset of the group is stored, unless the group is being deleted. The offsets
        of an open transaction do not count yet."""
        state = self._state
        if not (group_id in state.groups or group_id in state.consumer_groups or state.offsets.of_group(group_id)):
            return False
        group = self._classic.groups.get(group_id)
        is_dead = group is not None and group.state is ClassicGroupState.DEAD
        return not is_dead and not self._consumers.is_dying(group_id)


def _append(keys: Iterable[ReleasedHoldKey], context: GroupContext) -> None:
    records = [GroupRecord(key, None) for key in keys]
    for start in range(0, len(records), RECORDS_PER_WRITE):
        part = tuple(records[start : start + RECORDS_PER_WRITE])
        context.append(part, then=NoteFailure(what=f"{len(part)} holds that begin again"))
