"""What the caller may do with topics."""

from __future__ import annotations

from klamm.acls import AclOperation, ResourceType
from klamm_server.security.session import may, may_be_shown, refusal

_NO_TOPIC = "?"
"""The first character of names that stand for unknown topic ids. No topic has such a name, so the answer is that of a
missing topic. It tells the client nothing, and as in Kafka it comes before any check of rights."""


def may_with_topic(operation: AclOperation, topic: str) -> bool:
    """Whether the caller may do that with the topic, be it there or not."""
    return topic.startswith(_NO_TOPIC) or may(operation, ResourceType.TOPIC, topic)


def require_topic(operation: AclOperation, topic: str) -> None:
    """Raises TopicAuthorizationFailedError unless the caller may do that."""
    if not may_with_topic(operation, topic):
        raise refusal(ResourceType.TOPIC)


def may_see(topic: str) -> bool:
    """Whether the caller may know of a topic that it has named."""
    return may_with_topic(AclOperation.DESCRIBE, topic)


def is_listed(topic: str) -> bool:
    """Whether the caller may see a topic, after it asked for all topics. Unlike `may_see`, the audit does not record
    the decision."""
    return topic.startswith(_NO_TOPIC) or may_be_shown(AclOperation.DESCRIBE, ResourceType.TOPIC, topic)
