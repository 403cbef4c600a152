"""The config changes that throttle a reassignment, and those that end it (KIP-73, kafka-reassign-partitions).

A throttle consists of four configs. Two are rates of each broker: for the bytes that it sends and for those that it
fetches. Two are lists of replicas of each topic. The leader's list has all current replicas, because each of them may
become the leader. The follower's list has the replicas that are added."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from klamm.admin.types import ConfigChange, ConfigOperation, ConfigResource, ConfigResourceType
from klamm.model import TopicPartition

RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
"""Broker configs, in bytes per second."""
LEADERS = "leader.replication.throttled.replicas"
FOLLOWERS = "follower.replication.throttled.replicas"

Changes = dict[ConfigResource, list[ConfigChange]]
Placement = Mapping[TopicPartition, Sequence[int]]


def throttle_changes(before: Placement, after: Placement, *, brokers: Iterable[int], bytes_per_second: int) -> Changes:
    """Returns the config changes that throttle the move of replicas from `before` to `after`. Set them before the move
    begins. The lists of throttled replicas are extended, not replaced.

    `brokers` are the registered brokers, because only these have configs."""
    rates = [ConfigChange(name, str(bytes_per_second)) for name in RATES]
    involved = {broker for placement in (before, after) for tp in after for broker in placement[tp]}
    changes: Changes = {_broker(broker): rates for broker in sorted(involved.intersection(brokers))}
    for topic in sorted({tp.topic for tp in after}):
        partitions = sorted(tp for tp in after if tp.topic == topic)
        leaders = [f"{tp.partition}:{broker}" for tp in partitions for broker in before[tp]]
        followers = [
            f"{tp.partition}:{broker}" for tp in partitions for broker in after[tp] if broker not in before[tp]
        ]
        changes[_topic(topic)] = [
            ConfigChange(name, ",".join(replicas), ConfigOperation.APPEND)
            for name, replicas in ((LEADERS, leaders), (FOLLOWERS, followers))
        ]
    return changes


def unthrottle_changes(*, brokers: Iterable[int], topics: Iterable[str]) -> Changes:
    """Returns the config changes that remove a throttle after the last move has ended."""
    rates = [ConfigChange(name, operation=ConfigOperation.DELETE) for name in RATES]
    replicas = [ConfigChange(name, operation=ConfigOperation.DELETE) for name in (LEADERS, FOLLOWERS)]
    return {
        **{_broker(broker): rates for broker in sorted(set(brokers))},
        **{_topic(topic): replicas for topic in sorted(set(topics))},
    }


def _broker(broker_id: int) -> ConfigResource:
    return ConfigResource(ConfigResourceType.BROKER, str(broker_id))


def _topic(name: str) -> ConfigResource:
    return ConfigResource(ConfigResourceType.TOPIC, name)
