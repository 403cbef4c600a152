"""Tests which configs throttle a reassignment, and how the throttle ends."""

from __future__ import annotations

from klamm.admin import ConfigChange, ConfigOperation, ConfigResource, ConfigResourceType
from klamm.admin.replication_throttle import throttle_changes, unthrottle_changes
from klamm.model import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def topic(name: str) -> ConfigResource:
    return ConfigResource(ConfigResourceType.TOPIC, name)


def broker(number: int) -> ConfigResource:
    return ConfigResource(ConfigResourceType.BROKER, str(number))


def test_a_throttle_names_current_replicas_for_leaders_and_added_replicas_for_followers() -> None:
    before = {A0: (1, 2), A1: (2,), B0: (3,)}
    after = {A0: (2, 3), A1: (2, 4), B0: (3,)}
    changes = throttle_changes(before, after, brokers=[1, 2, 3, 5], bytes_per_second=7)
    assert list(changes) == [broker(1), broker(2), broker(3), topic("a"), topic("b")], "broker 4 is not registered"
    assert {(change.name, change.value) for change in changes[broker(1)]} == {
        ("leader.replication.throttled.rate", "7"),
        ("follower.replication.throttled.rate", "7"),
    }
    assert changes[topic("a")] == [
        ConfigChange("leader.replication.throttled.replicas", "0:1,0:2,1:2", ConfigOperation.APPEND),
        ConfigChange("follower.replication.throttled.replicas", "0:3,1:4", ConfigOperation.APPEND),
    ]


def test_the_end_of_a_throttle_deletes_every_config_that_it_set() -> None:
    before, after = {A0: (1,)}, {A0: (2,)}
    begun = throttle_changes(before, after, brokers=[1, 2], bytes_per_second=1)
    ended = unthrottle_changes(brokers=[1, 2], topics=["a"])
    assert begun.keys() == ended.keys()
    for resource, changes in begun.items():
        assert {change.name for change in changes} == {each.name for each in ended[resource]}
    assert all(change.operation is ConfigOperation.DELETE for changes in ended.values() for change in changes)
