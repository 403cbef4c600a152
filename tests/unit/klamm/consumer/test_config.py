"""Tests the defaults of Kafka's consumer settings and the refused values."""

from __future__ import annotations

import pytest

from klamm.consumer.assignors import RoundRobinAssignor
from klamm.consumer.config import ConsumerConfig
from klamm.errors import ConfigError


def test_defaults_are_kafkas():
    config = ConsumerConfig.parse()
    assert (config.max_poll_records, config.fetch_max_bytes) == (500, 52_428_800)
    assert (config.session_timeout_ms, config.heartbeat_interval_ms) == (45_000, 3_000)
    assert config.auto_offset_reset == "latest"
    assert [each.name for each in config.partition_assignment_strategy] == ["range", "cooperative-sticky"]


def test_assignors_are_names_or_objects():
    own = RoundRobinAssignor()
    config = ConsumerConfig.parse({"partition.assignment.strategy": [own, "sticky"]})
    assert config.partition_assignment_strategy[0] is own
    assert [each.name for each in config.partition_assignment_strategy] == ["roundrobin", "sticky"]
    assert [
        each.name
        for each in ConsumerConfig.parse(partition_assignment_strategy="range, sticky").partition_assignment_strategy
    ] == ["range", "sticky"]


def test_deserializers_are_functions_or_names():
    config = ConsumerConfig.parse({"key.deserializer": "long", "value.deserializer": bytes.decode})
    assert config.key_deserializer is not None
    assert config.key_deserializer(b"\0\0\0\0\0\0\0\x07") == 7
    assert config.value_deserializer is bytes.decode
    assert ConsumerConfig.parse(key_deserializer="bytes").key_deserializer is None


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"heartbeat_interval_ms": 5_000, "session_timeout_ms": 5_000}, "heartbeat.interval.ms"),
        ({"group_id": ""}, "group.id"),
        ({"group_instance_id": "a"}, "group.id"),
        ({"auto_offset_reset": "newest"}, "earliest, latest, nearest, none"),
        ({"isolation_level": "serializable"}, "read_uncommitted"),
        ({"partition_assignment_strategy": "best"}, "'best' is unknown"),
        ({"value_deserializer": "avro"}, "a function or one of"),
        ({"group_protocol": "streams"}, "classic"),
        ({"group_remote_assignor": "uniform"}, "group.protocol=consumer"),
        ({"interceptor_classes": [object()]}, "on_consume"),
        ({"max_poll_records": 0}, "at least 1"),
        ({"max_pol_records": 1}, "did you mean max.poll.records"),
    ],
)
def test_an_invalid_consumer_config_is_refused_and_named(settings, names):
    with pytest.raises(ConfigError) as raised:
        ConsumerConfig.parse(**settings)
    assert names in str(raised.value)
