"""Checks the caller's rights to topics."""

from __future__ import annotations

from collections.abc import Iterable

from klamm.acls import AclOperation, ResourceType
from klamm_server.security.session import CALLER, may, may_be_shown, refusal

_NO_TOPIC = "?"
"""The first character of names that stand for unknown topic ids. No topic has such a name, so the answer is that of a
missing topic. As in Kafka, it comes before any check of rights, because it reveals nothing."""


def may_with_topic(operation: AclOperation, topic: str) -> bool:
    """Returns True if the caller may perform the operation on the topic, whether or not the topic exists."""
    return topic.startswith(_NO_TOPIC) or may(operation, ResourceType.TOPIC, topic)


def refused_topics(operation: AclOperation, topics: Iterable[str]) -> set[str]:
    """Returns the topics on which the caller may not perform the operation, whether or not they exist. A request with
    many partitions passes each of its topics once, because the audit records every check."""
    refused: set[str] = set()
    caller = CALLER.get()
    if caller is None:
        return refused
    # A loop without another function in between: in a small request, each call costs about half a percent of the time.
    for topic in topics:
        if not topic.startswith(_NO_TOPIC) and not caller.may(operation, ResourceType.TOPIC, topic):
            refused.add(topic)
    return refused


def require_topic(operation: AclOperation, topic: str) -> None:
    """Raises TopicAuthorizationFailedError unless the caller may perform the operation on the topic."""
    if not may_with_topic(operation, topic):
        raise refusal(ResourceType.TOPIC)


def may_see(topic: str) -> bool:
    """Returns True if the caller may describe a topic that its request named."""
    return may_with_topic(AclOperation.DESCRIBE, topic)


def is_listed(topic: str) -> bool:
    """Returns True if a list of all topics may show the topic to the caller. Unlike for `may_see`, the audit does not
    record the decision."""
    return topic.startswith(_NO_TOPIC) or may_be_shown(AclOperation.DESCRIBE, ResourceType.TOPIC, topic)
