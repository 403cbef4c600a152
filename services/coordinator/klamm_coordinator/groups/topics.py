"""The cluster's topics at one moment, for the rules of groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol


class TopicInfo(NamedTuple):
    """The id and the partition count of a topic."""

    topic_id: bytes
    """The topic's id, 16 bytes long."""
    partition_count: int


class Topics(Protocol):
    """The topics of the cluster at one moment. If a later object differs in anything, its version is greater."""

    @property
    def version(self) -> int: ...

    def get(self, name: str) -> TopicInfo | None:
        """Returns the topic with that name, or None if it does not exist."""

    def names(self) -> Iterable[str]:
        """Returns the names of the topics that a regular expression may match."""

    def is_newer(self, name: str, version: int) -> bool:
        """Returns True if the topic was created after that version, and this coordinator saw it."""


class HeldTopics(Topics, Protocol):
    """The topics of the cluster at one moment, with the groups for which their retention waits."""

    def held_by(self, group_id: str) -> Mapping[str, bytes]:
        """Returns the ids of the topics whose `retention.hold.groups` names the group, by name."""


@dataclass(frozen=True, slots=True)
class FixedTopics:
    """Topics that the caller passes as a mapping by name."""

    version: int
    by_name: Mapping[str, TopicInfo]
    created: Mapping[str, int] = field(default_factory=dict)
    """The version with which a topic was created, by name."""
    holds: Mapping[str, Mapping[str, bytes]] = field(default_factory=dict)
    """The ids of the topics that each group holds, by group id and topic name."""

    def get(self, name: str) -> TopicInfo | None:
        return self.by_name.get(name)

    def names(self) -> Iterable[str]:
        return self.by_name

    def is_newer(self, name: str, version: int) -> bool:
        return self.created.get(name, 0) > version

    def held_by(self, group_id: str) -> Mapping[str, bytes]:
        return self.holds.get(group_id, {})


NO_TOPICS = FixedTopics(0, {})
"""A cluster without topics."""
