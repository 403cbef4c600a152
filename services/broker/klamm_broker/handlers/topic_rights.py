"""Checks the caller's rights to topics."""

from __future__ import annotations

from klamm.acls import AclOperation, ResourceType
from klamm_server.security.session import may, may_be_shown, refusal

_NO_TOPIC = "?"
"""The first character of names that stand for unknown topic ids. No topic has such a name, so the answer is that of a
missing topic. As in Kafka, it comes before any check of rights, because it reveals nothing."""


def may_with_topic(operation: AclOperation, topic: str) -> bool:
    """Returns True if the caller may perform the operation on the topic, whether or not the topic exists."""
    return topic.startswith(_NO_TOPIC) or may(operation, ResourceType.TOPIC, topic)


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
