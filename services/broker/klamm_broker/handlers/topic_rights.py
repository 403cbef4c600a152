"""Checks the caller's rights to topics."""

from __future__ import annotations

from collections.abc import Iterable

from klamm_server.security.needs import DESCRIBE_TOPIC, TOPIC_SHOWN, Need
from klamm_server.security.session import CALLER

_NO_TOPIC = "?"
"""The first character of names that stand for unknown topic ids. No topic has such a name, so the answer is that of a
missing topic. As in Kafka, it comes before any check of rights, because it reveals nothing."""


def refused_topics(need: Need, topics: Iterable[str]) -> set[str]:
    """Returns the topics for which the caller does not meet the need, whether or not they exist. A request with many
    partitions passes each of its topics once, because the audit records every check."""
    refused: set[str] = set()
    caller = CALLER.get()
    if caller is None:
        return refused
    ((operation, resource_type),) = need.one_of
    # A loop without another function in between: in a small request, each call costs about half a percent of the time.
    for topic in topics:
        if not topic.startswith(_NO_TOPIC) and not caller.may(operation, resource_type, topic):
            refused.add(topic)
    return refused


def require_topic(need: Need, topic: str) -> None:
    """Raises TopicAuthorizationFailedError unless the caller meets the need, whether or not the topic exists."""
    if not topic.startswith(_NO_TOPIC):
        need.require(topic)


def may_see(topic: str) -> bool:
    """Returns True if the caller may describe a topic that its request named, whether or not the topic exists."""
    return topic.startswith(_NO_TOPIC) or DESCRIBE_TOPIC.allows(topic)


def is_listed(topic: str) -> bool:
    """Returns True if a list of all topics may show the topic to the caller. Unlike for `may_see`, the audit does not
    record the decision."""
    return topic.startswith(_NO_TOPIC) or TOPIC_SHOWN.shows(topic)
