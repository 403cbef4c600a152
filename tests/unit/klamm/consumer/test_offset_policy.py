"""Where auto.offset.reset sends a partition, and which durations it takes."""

from __future__ import annotations

import pytest

from klamm.consumer.config import ConsumerConfig
from klamm.consumer.errors import NoOffsetForPartitionError
from klamm.consumer.offset_policy import OffsetPolicy
from klamm.consumer.subscription import SubscriptionState
from klamm.errors import ConfigError, OffsetOutOfRangeError
from klamm.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition

TP = TopicPartition("t", 0)
NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


def policy(reset: str) -> tuple[OffsetPolicy, SubscriptionState]:
    subscription = SubscriptionState()
    subscription.assign([TP])
    return OffsetPolicy(subscription, ConsumerConfig.parse(auto_offset_reset=reset).auto_offset_reset), subscription


@pytest.mark.parametrize(
    ("reset", "timestamp_ms"),
    [
        ("earliest", EARLIEST_TIMESTAMP),
        ("latest", LATEST_TIMESTAMP),
        ("by_duration:PT1H", NOW_MS - HOUR_MS),
        ("by_duration:P2D", NOW_MS - 48 * HOUR_MS),
        ("by_duration:P1DT2H3M4.5S", NOW_MS - 26 * HOUR_MS - 3 * 60_000 - 4_500),
        ("by_duration:PT0.001S", NOW_MS - 1),
        ("by_duration:PT1,25S", NOW_MS - 1_250),
        ("by_duration:pt90m", NOW_MS - 90 * 60_000),
        ("by_duration:PT0S", NOW_MS),
        ("by_duration:P100000D", 0),
    ],
)
def test_a_partition_is_sent_to(reset, timestamp_ms):
    uncommitted, subscription = policy(reset)
    assert uncommitted.on_nothing_committed([TP], NOW_MS) is None
    assert subscription.resetting() == {TP: timestamp_ms}
    beyond, subscription = policy(reset)
    assert beyond.on_out_of_range(TP, 7, NOW_MS) is None
    assert subscription.resetting() == {TP: timestamp_ms}


def test_without_a_policy_both_are_errors():
    none, subscription = policy("none")
    assert isinstance(none.on_nothing_committed([TP], NOW_MS), NoOffsetForPartitionError)
    assert none.on_nothing_committed([], NOW_MS) is None
    assert isinstance(none.on_out_of_range(TP, 7, NOW_MS), OffsetOutOfRangeError)
    assert subscription.resetting() == {}


@pytest.mark.parametrize(
    "duration", ["", "P", "PT", "P1DT", "1H", "PT1", "PT-1H", "-PT1H", "P1M", "P1Y", "P1W", "PT1H1D", "PT.5S", "PT1H "]
)
def test_what_is_no_duration_is_refused(duration):
    with pytest.raises(ConfigError, match="by_duration:PT1H"):
        ConsumerConfig.parse(auto_offset_reset=f"by_duration:{duration}")
