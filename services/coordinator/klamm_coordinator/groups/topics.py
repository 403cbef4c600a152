"""The cluster's topics at one moment, for the rules of groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class FixedTopics:
    """Topics that the caller passes as a mapping by name."""

    version: int
    by_name: Mapping[str, TopicInfo]

    def get(self, name: str) -> TopicInfo | None:
        return self.by_name.get(name)

    def names(self) -> Iterable[str]:
        return self.by_name


NO_TOPICS = FixedTopics(0, {})
"""A cluster without topics."""
