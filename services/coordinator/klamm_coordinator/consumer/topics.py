"""The cluster's topics at one moment, as groups see them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol


class TopicInfo(NamedTuple):
    """A topic."""

    topic_id: bytes
    """16 bytes."""
    partition_count: int


class Topics(Protocol):
    """Does not change; a later one has a greater version if anything in it differs."""

    @property
    def version(self) -> int: ...

    def get(self, name: str) -> TopicInfo | None:
        """The topic of that name."""

    def names(self) -> Iterable[str]:
        """The names of topics that an expression may match."""


@dataclass(frozen=True, slots=True)
class FixedTopics:
    """Given one by one."""

    version: int
    by_name: Mapping[str, TopicInfo]

    def get(self, name: str) -> TopicInfo | None:
        return self.by_name.get(name)

    def names(self) -> Iterable[str]:
        return self.by_name
