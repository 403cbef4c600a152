"""The holds that ended because a user deleted their group, as in the acknowledged records of one shard.

A topic's `retention.hold.groups` bounds their number, because a hold that does not name the group has no record.

Invariant: no group with an empty dict of topics is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from klamm_coordinator.records.released_hold_schema import ReleasedHoldKey, ReleasedHoldValue

_NONE: Final[Mapping[str, bytes]] = {}


class ReleasedHolds:
    """The released holds of one shard's groups. Only replayed records change them."""

    def __init__(self) -> None:
        self._stored: dict[str, dict[str, bytes]] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ReleasedHolds) and self._stored == other._stored

    __hash__ = None  # type: ignore[assignment]

    def __contains__(self, group_id: str) -> bool:
        """Returns True if a hold of the group was released."""
        return group_id in self._stored

    def of_group(self, group_id: str) -> Mapping[str, bytes]:
        """Returns the ids of the topics that the group does not hold any more, by name."""
        return self._stored.get(group_id, _NONE)

    def all_keys(self) -> Iterator[ReleasedHoldKey]:
        """Yields the keys of all released holds."""
        for group_id, topics in self._stored.items():
            for topic in topics:
                yield ReleasedHoldKey(group_id, topic)

    def replay(self, key: ReleasedHoldKey, value: ReleasedHoldValue | None) -> None:
        """Replays an acknowledged record. None means that the group may hold the topic again."""
        if value is not None:
            self._stored.setdefault(key.group_id, {})[key.topic] = value.topic_id
        elif key.topic in self.of_group(key.group_id):
            topics = self._stored[key.group_id]
            del topics[key.topic]
            if not topics:
                del self._stored[key.group_id]
