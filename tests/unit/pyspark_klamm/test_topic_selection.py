"""Tests which partitions a subscription selects, and which it cannot read."""

from __future__ import annotations

import uuid

import pytest

from klamm.cluster.metadata import ClusterView, PartitionView, TopicView
from klamm.errors import ConfigError
from klamm.model import TopicPartition
from pyspark_klamm.option_values import OptionValues
from pyspark_klamm.source_options import SourceSettings
from pyspark_klamm.topic_selection import TopicSelection, subscription


def topic(name: str, partition_count: int, *, internal: bool = False) -> TopicView:
    partitions = tuple(
        PartitionView(partition=number, leader=1, leader_epoch=0, replicas=(1,), isr=(1,))
        for number in range(partition_count)
    )
    return TopicView(name=name, topic_id=uuid.uuid4(), partitions=partitions, internal=internal)


TOPICS = (topic("flights", 2), topic("my-flights", 1), topic("weather", 1), topic("__flights", 1, internal=True))
VIEW = ClusterView(topics={each.name: each for each in TOPICS})


def parsed(**options: str) -> TopicSelection:
    return subscription(OptionValues(options, SourceSettings))


def test_subscribe_selects_every_partition_of_the_existing_topics():
    chosen = parsed(subscribe="weather, flights, none-such")
    assert chosen.requested_topics == ("weather", "flights", "none-such")
    assert chosen.choose(VIEW) == [TopicPartition(*each) for each in (("weather", 0), ("flights", 0), ("flights", 1))]


def test_a_topic_pattern_matches_anywhere_in_a_name_and_no_internal_topic():
    chosen = parsed(subscribePattern="fli.ht")
    assert chosen.requested_topics is None
    assert chosen.names(VIEW) == ["flights", "my-flights"]
    assert parsed(subscribePattern="^fli").names(VIEW) == ["flights"]


def test_assign_selects_only_the_named_partitions():
    chosen = parsed(assign='{"flights": [1], "weather": [0, 5]}')
    assert chosen.choose(VIEW) == [TopicPartition("flights", 1), TopicPartition("weather", 0)]


@pytest.mark.parametrize(
    ("option", "value", "named"),
    [
        ("subscribePattern", "(", "expected a regular expression"),
        ("subscribePattern", r"\p{Lower}", "bad escape"),
        ("subscribePattern", "[a-z&&[^b]]", "set"),
        ("subscribePattern", "(?<name>a)", "expected a regular expression"),
        ("subscribePattern", "", "expected a regular expression"),
        ("assign", "flights", "expected JSON such as"),
        ("assign", '{"flights": [-1]}', "-1 is not a partition"),
        ("assign", '{"flights": []}', "no partitions"),
        ("assign", '{"a b": [0]}', "assign="),
    ],
)
def test_an_invalid_topic_selection_is_refused(option, value, named):
    with pytest.raises(ConfigError, match=named):
        parsed(**{option: value})
