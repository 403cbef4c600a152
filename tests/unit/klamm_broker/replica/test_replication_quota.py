"""Tests replication quotas: which bytes count, when a limit is exceeded, and when it is free again."""

from __future__ import annotations

import dataclasses
import uuid

from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.model import TopicPartition
from klamm.wire.v1.metadata_pb2 import CONFIG_RESOURCE_TYPE_BROKER, CONFIG_RESOURCE_TYPE_TOPIC
from klamm_broker.replica.replication_quota import NO_LIMIT, ReplicationQuota, ReplicationQuotas, WindowedRate
from klamm_server.config.broker_configs import BrokerConfig
from klamm_server.metadata.image import MetadataImage

THROTTLED = TopicPartition("t", 1)
OTHER = TopicPartition("t", 2)


def quota(limit: int) -> ReplicationQuota:
    made = ReplicationQuota()
    made.configure(limit, {"t": frozenset({1})})
    return made


def test_only_bytes_of_throttled_replicas_count() -> None:
    one = quota(100)
    one.record(OTHER, 10_000, 0)
    one.record(TopicPartition("u", 1), 10_000, 0)
    assert not one.is_exceeded(0)
    one.record(THROTTLED, 101, 0)
    assert one.is_exceeded(0)
    assert one.copied_bytes == 101


def test_after_a_burst_the_quota_is_exceeded_for_the_time_the_burst_should_have_taken() -> None:
    one = quota(100)
    one.record(THROTTLED, 300, 500)
    assert one.is_exceeded(500)
    assert one.free_at_ms(500) == 3_500
    assert one.is_exceeded(3_499)
    assert not one.is_exceeded(3_500)


def test_bytes_older_than_eleven_windows_are_forgotten() -> None:
    one = quota(1)
    one.record(THROTTLED, 10**9, 0)
    assert one.free_at_ms(0) == 11_000
    assert not one.is_exceeded(11_000)


def test_an_idle_quota_allows_one_second_of_its_rate_and_a_just_freed_one_a_portion() -> None:
    one = quota(1_000)
    assert one.free_bytes(0) == 1_000
    one.record(THROTTLED, 1_000, 0)
    assert one.free_bytes(1_000) == 100
    assert one.free_bytes(2_000) == 1_000


def test_without_a_limit_nothing_is_exceeded() -> None:
    one = quota(NO_LIMIT)
    one.record(THROTTLED, 2**62, 0)
    assert not one.is_exceeded(0)
    assert (one.free_at_ms(5), one.free_bytes(0)) == (5, NO_LIMIT)


def test_a_limit_of_zero_lets_one_portion_through_in_eleven_seconds() -> None:
    one = quota(0)
    assert one.free_bytes(0) == 1
    one.record(THROTTLED, 1, 0)
    assert one.is_exceeded(10_999)
    assert one.free_at_ms(0) == 11_000


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3_000), st.integers(1, 10**7)), max_size=30), st.integers(0, 10**6))
def test_the_rate_falls_below_the_limit_exactly_at_the_predicted_time(
    records: list[tuple[int, int]], limit: int
) -> None:
    now_ms, rate = 0, WindowedRate()
    for pause_ms, size_bytes in records:
        now_ms += pause_ms
        rate.record(size_bytes, now_ms)
    free_ms = rate.below_at_ms(limit, now_ms)
    assert free_ms >= now_ms
    if free_ms > now_ms:
        assert rate.is_above(limit, free_ms - 1)
    assert not rate.is_above(limit, free_ms)


@settings(deadline=None)
@given(st.integers(1, 10**6), st.lists(st.integers(1, 10**5), min_size=1, max_size=40))
def test_a_sender_that_waits_until_the_predicted_time_keeps_the_limit(limit: int, sizes: list[int]) -> None:
    """After the first second, the bytes before the last portion took at least the time that the limit requires."""
    now_ms, sent, rate = 0, 0, WindowedRate()
    for size_bytes in sizes:
        now_ms = rate.below_at_ms(limit, now_ms)
        if now_ms < 10_000:  # the window still has every portion
            assert sent * 1000 <= limit * max(1_000, now_ms)
        rate.record(size_bytes, now_ms)
        sent += size_bytes


def image(**topics: dict[str, str]) -> MetadataImage:
    configs = {(CONFIG_RESOURCE_TYPE_TOPIC, name): configs for name, configs in topics.items()}
    brokers = {
        (CONFIG_RESOURCE_TYPE_BROKER, "1"): {"leader.replication.throttled.rate": "5"},
        (CONFIG_RESOURCE_TYPE_BROKER, ""): {
            "leader.replication.throttled.rate": "6",
            "follower.replication.throttled.rate": "7",
        },
    }
    return dataclasses.replace(MetadataImage.empty(), configs={**configs, **brokers})


def test_throttled_replicas_are_read_from_topic_configs_by_partition_and_broker() -> None:
    quotas = ReplicationQuotas()
    assert quotas.apply(
        image(
            t={
                "leader.replication.throttled.replicas": "1:1,2:2",
                "follower.replication.throttled.replicas": "2:1",
            },
            u={"leader.replication.throttled.replicas": "*"},
            v={"retention.ms": "1"},
        ),
        BrokerConfig(node_id=1, leader_replication_throttled_rate=5, follower_replication_throttled_rate=7),
    )
    assert (quotas.leader.limit, quotas.follower.limit) == (5, 7)
    assert quotas.leader.is_throttled(THROTTLED)
    assert not quotas.leader.is_throttled(OTHER)
    assert quotas.follower.is_throttled(OTHER)
    assert quotas.leader.is_throttled(TopicPartition("u", 99))
    assert not quotas.leader.is_throttled(TopicPartition("v", 1))


def test_an_image_without_config_changes_does_not_change_the_replication_quotas() -> None:
    quotas = ReplicationQuotas()
    empty = MetadataImage.empty()
    assert quotas.apply(empty, BrokerConfig(node_id=1))
    assert quotas.leader.limit == NO_LIMIT
    same = dataclasses.replace(empty, cluster_id=str(uuid.UUID(int=1)))
    assert not quotas.apply(same, BrokerConfig(node_id=1)), "no config has changed"
