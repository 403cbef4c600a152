"""The topics that a caller may see, for requests of group members."""

from __future__ import annotations

from collections.abc import Iterable

from klamm_coordinator.groups.topics import TopicInfo, Topics
from klamm_server.security.needs import TOPIC_SHOWN
from klamm_server.security.session import CALLER, Session


def visible_to_caller(topics: Topics) -> Topics:
    """Returns the same topics, but a regular expression matches only those that the caller may describe."""
    caller = CALLER.get()
    return topics if caller is None else _DescribedTopics(topics, caller)


class _DescribedTopics:
    """The topics for one caller. It keeps the caller's session, because the group's turn does not run in the caller's
    context."""

    def __init__(self, topics: Topics, caller: Session) -> None:
        self._topics = topics
        self._caller = caller

    @property
    def version(self) -> int:
        return self._topics.version

    def get(self, name: str) -> TopicInfo | None:
        return self._topics.get(name)

    def names(self) -> Iterable[str]:
        return [name for name in self._topics.names() if TOPIC_SHOWN.shows_to(self._caller, name)]

    def is_newer(self, name: str, version: int) -> bool:
        return self._topics.is_newer(name, version)
