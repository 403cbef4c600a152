"""Finds the errors of leaders in topic metadata, and creates missing topics, for both protocols.

A missing topic is created if both the request and `auto.create.topics.enable` allow it. Until it exists, the answer is
LEADER_NOT_AVAILABLE, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable

from klamm.errors import ErrorCode
from klamm.model import topic_name_problem
from klamm_broker.metadata.topic_creator import TopicCreator
from klamm_server.security.needs import CREATE_TOPIC


class MissingTopics:
    """Answers metadata requests about topics that do not exist, and creates these topics if that is allowed."""

    def __init__(self, topic_creator: TopicCreator, *, auto_create_topics: bool) -> None:
        self._topic_creator = topic_creator
        self._auto_create_topics = auto_create_topics

    def missing(self, name: str, may_create: bool) -> ErrorCode:
        """Returns the error of a topic that does not exist. Requests its creation if the config, the request and the
        caller's rights allow it."""
        if topic_name_problem(name) is not None:
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        if not (self._auto_create_topics and may_create):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if not CREATE_TOPIC.allows(name):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return self._topic_creator.create(name)

    async def created(self, names: Iterable[str], *, timeout_ms: int) -> None:
        """Waits until topics exist for which `missing` returned LEADER_NOT_AVAILABLE (`TopicCreator.created`)."""
        await self._topic_creator.created(names, timeout_ms=timeout_ms)


def leader_error(leader: int, unreachable: frozenset[int]) -> ErrorCode:
    """Returns the error for a partition's leader. `unreachable` are the brokers without an address on the client's
    listener."""
    if leader < 0:
        return ErrorCode.LEADER_NOT_AVAILABLE
    return ErrorCode.LISTENER_NOT_FOUND if leader in unreachable else ErrorCode.NONE
