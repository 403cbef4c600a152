"""Tests where auto.offset.reset sends a partition, and which durations it accepts."""

from __future__ import annotations

import pytest

from klamm.consumer.config import ConsumerConfig
from klamm.consumer.errors import LogTruncation, LogTruncationError, NoOffsetForPartitionError
from klamm.consumer.offset_policy import OffsetPolicy
from klamm.consumer.partition_state import Validation
from klamm.consumer.position_reset import LostPosition
from klamm.consumer.subscription import SubscriptionState
from klamm.errors import ConfigError, OffsetOutOfRangeError
from klamm.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition
from klamm.offsets import EpochEnd, OffsetAndMetadata

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
def test_each_reset_policy_resets_the_position_to_its_timestamp(reset, timestamp_ms):
    uncommitted, subscription = policy(reset)
    assert uncommitted.on_nothing_committed([TP], NOW_MS) is None
    assert subscription.resetting() == {TP: timestamp_ms}
    beyond, subscription = policy(reset)
    assert beyond.on_out_of_range(TP, LostPosition(7), NOW_MS) is None
    assert subscription.resetting() == {TP: timestamp_ms}
    assert subscription.require(TP).lost == LostPosition(7)


@pytest.mark.parametrize(
    ("lost", "timestamp_ms"),
    [
        (LostPosition(7, 10, 20), EARLIEST_TIMESTAMP),
        (LostPosition(21, 10, 20), LATEST_TIMESTAMP),
        (LostPosition(21, 0, 0), LATEST_TIMESTAMP),
        (LostPosition(7), EARLIEST_TIMESTAMP),
    ],
)
def test_nearest_resets_to_the_closer_of_log_start_and_log_end(lost, timestamp_ms):
    nearest, subscription = policy("nearest")
    assert nearest.on_out_of_range(TP, lost, NOW_MS) is None
    assert subscription.resetting() == {TP: timestamp_ms}


def test_nearest_starts_at_the_log_start_without_a_committed_offset():
    nearest, subscription = policy("nearest")
    assert nearest.on_nothing_committed([TP], NOW_MS) is None
    assert subscription.resetting() == {TP: EARLIEST_TIMESTAMP}


def test_without_a_policy_a_missing_or_out_of_range_offset_is_an_error():
    none, subscription = policy("none")
    assert isinstance(none.on_nothing_committed([TP], NOW_MS), NoOffsetForPartitionError)
    assert none.on_nothing_committed([], NOW_MS) is None
    assert isinstance(none.on_out_of_range(TP, LostPosition(7), NOW_MS), OffsetOutOfRangeError)
    assert subscription.resetting() == {}


@pytest.mark.parametrize(
    "duration", ["", "P", "PT", "P1DT", "1H", "PT1", "PT-1H", "-PT1H", "P1M", "P1Y", "P1W", "PT1H1D", "PT.5S", "PT1H "]
)
def test_an_invalid_duration_is_refused(duration):
    with pytest.raises(ConfigError, match="by_duration:PT1H"):
        ConsumerConfig.parse(auto_offset_reset=f"by_duration:{duration}")


# --- a log that was cut


def validating(reset: str) -> tuple[OffsetPolicy, SubscriptionState, Validation]:
    """Returns a state with position 9, after records of epoch 3."""
    made, subscription = policy(reset)
    subscription.require(TP).seek(9, 3)
    return made, subscription, subscription.validating()[TP]


def end(leader_epoch: int, end_offset: int) -> EpochEnd:
    """Returns an answer of the leader of epoch 6."""
    return EpochEnd(leader_epoch, end_offset, 6)


DIVERGENT = OffsetAndMetadata(7, "", 2)
TRUNCATION = LogTruncation(TP, 9, 3, DIVERGENT)
UNKNOWN = pytest.mark.parametrize("unknown", [end(-1, -1), end(2, -1), end(-1, 7)])


@pytest.mark.parametrize("reset", ["earliest", "none"])
@pytest.mark.parametrize("end_offset", [9, 12])
def test_a_position_is_valid_if_its_epoch_ends_at_or_after_it(reset, end_offset):
    made, subscription, asked = validating(reset)
    assert made.on_epoch_end(TP, asked, end(3, end_offset), NOW_MS) is None
    state = subscription.require(TP)
    assert (state.fetchable, state.position, state.leader_epoch, state.current_leader_epoch) == (True, 9, 3, 6)


def test_a_valid_position_takes_the_older_epoch_that_the_leader_returned():
    """Otherwise every fetch would report diverging logs, and every validation would find that they do not diverge."""
    made, subscription, asked = validating("none")
    assert made.on_epoch_end(TP, asked, end(2, 9), NOW_MS) is None
    assert subscription.require(TP).leader_epoch == 2


@pytest.mark.parametrize("reset", ["earliest", "latest", "nearest", "by_duration:PT1H"])
def test_with_any_policy_a_truncated_log_is_read_again_from_the_divergence(reset):
    made, subscription, asked = validating(reset)
    assert made.on_epoch_end(TP, asked, end(2, 7), NOW_MS) == TRUNCATION
    state = subscription.require(TP)
    assert (state.fetchable, state.position, state.leader_epoch, state.current_leader_epoch) == (True, 7, 2, 6)


def test_without_a_policy_a_truncated_log_leaves_the_position_unvalidated():
    made, subscription, asked = validating("none")
    for _ in range(2):
        assert made.on_epoch_end(TP, asked, end(2, 7), NOW_MS) == TRUNCATION
    assert subscription.validating() == {TP: asked}


@UNKNOWN
@pytest.mark.parametrize(("reset", "timestamp_ms"), [("earliest", EARLIEST_TIMESTAMP), ("nearest", LATEST_TIMESTAMP)])
def test_an_unknown_point_of_divergence_resets_the_position_by_the_policy(unknown, reset, timestamp_ms):
    made, subscription, asked = validating(reset)
    assert made.on_epoch_end(TP, asked, unknown, NOW_MS) == TRUNCATION._replace(divergent=None)
    assert subscription.resetting() == {TP: timestamp_ms}
    assert subscription.require(TP).lost == LostPosition(9)


@UNKNOWN
def test_an_unknown_divergence_without_a_policy_leaves_the_position_unvalidated(unknown):
    made, subscription, asked = validating("none")
    assert made.on_epoch_end(TP, asked, unknown, NOW_MS) == TRUNCATION._replace(divergent=None)
    assert subscription.validating() == {TP: asked}


@pytest.mark.parametrize("answer", [end(3, 9), end(2, 7), end(-1, -1)])
def test_an_epoch_answer_after_a_seek_does_not_move_the_position(answer):
    made, subscription, asked = validating("earliest")
    subscription.require(TP).seek(1)
    assert made.on_epoch_end(TP, asked, answer, NOW_MS) is None
    assert subscription.require(TP).position == 1
    assert subscription.resetting() == {}


def test_a_log_truncation_error_names_the_truncations_and_divergent_offsets():
    other = LogTruncation(TopicPartition("t", 1), 5, 3, None)
    error = LogTruncationError([TRUNCATION, other])
    assert isinstance(error, OffsetOutOfRangeError)
    assert error.truncations == (TRUNCATION, other)
    assert error.divergent_offsets == {TP: DIVERGENT}
    assert "t-0" in str(error)
    assert "from offset 7" in str(error)
    assert "offset 9, in leader epoch 3" in str(error)
