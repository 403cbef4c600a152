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
def test_a_partition_is_sent_to(reset, timestamp_ms):
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
def test_nearest_goes_to_the_end_of_the_log_that_is_closer(lost, timestamp_ms):
    nearest, subscription = policy("nearest")
    assert nearest.on_out_of_range(TP, lost, NOW_MS) is None
    assert subscription.resetting() == {TP: timestamp_ms}


def test_nearest_begins_at_the_start_of_the_log_where_nothing_is_committed():
    nearest, subscription = policy("nearest")
    assert nearest.on_nothing_committed([TP], NOW_MS) is None
    assert subscription.resetting() == {TP: EARLIEST_TIMESTAMP}


def test_without_a_policy_both_are_errors():
    none, subscription = policy("none")
    assert isinstance(none.on_nothing_committed([TP], NOW_MS), NoOffsetForPartitionError)
    assert none.on_nothing_committed([], NOW_MS) is None
    assert isinstance(none.on_out_of_range(TP, LostPosition(7), NOW_MS), OffsetOutOfRangeError)
    assert subscription.resetting() == {}


@pytest.mark.parametrize(
    "duration", ["", "P", "PT", "P1DT", "1H", "PT1", "PT-1H", "-PT1H", "P1M", "P1Y", "P1W", "PT1H1D", "PT.5S", "PT1H "]
)
def test_what_is_no_duration_is_refused(duration):
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
def test_a_position_goes_on_when_its_epoch_reaches_it(reset, end_offset):
    made, subscription, asked = validating(reset)
    assert made.on_epoch_end(TP, asked, end(3, end_offset), NOW_MS) is None
    state = subscription.require(TP)
    assert (state.fetchable, state.position, state.leader_epoch, state.current_leader_epoch) == (True, 9, 3, 6)


def test_a_position_in_an_older_epoch_than_was_read_goes_on_with_that():
    """Otherwise every fetch would report diverging logs, and every validation would find that they do not diverge."""
    made, subscription, asked = validating("none")
    assert made.on_epoch_end(TP, asked, end(2, 9), NOW_MS) is None
    assert subscription.require(TP).leader_epoch == 2


@pytest.mark.parametrize("reset", ["earliest", "latest", "nearest", "by_duration:PT1H"])
def test_with_any_policy_a_cut_log_is_read_again_from_where_it_parts(reset):
    made, subscription, asked = validating(reset)
    assert made.on_epoch_end(TP, asked, end(2, 7), NOW_MS) == TRUNCATION
    state = subscription.require(TP)
    assert (state.fetchable, state.position, state.leader_epoch, state.current_leader_epoch) == (True, 7, 2, 6)


def test_without_a_policy_a_cut_log_keeps_the_position_waiting():
    made, subscription, asked = validating("none")
    for _ in range(2):
        assert made.on_epoch_end(TP, asked, end(2, 7), NOW_MS) == TRUNCATION
    assert subscription.validating() == {TP: asked}


@UNKNOWN
@pytest.mark.parametrize(("reset", "timestamp_ms"), [("earliest", EARLIEST_TIMESTAMP), ("nearest", LATEST_TIMESTAMP)])
def test_where_nobody_knows_where_the_log_parts_the_policy_says_where_to_begin(unknown, reset, timestamp_ms):
    made, subscription, asked = validating(reset)
    assert made.on_epoch_end(TP, asked, unknown, NOW_MS) == TRUNCATION._replace(divergent=None)
    assert subscription.resetting() == {TP: timestamp_ms}
    assert subscription.require(TP).lost == LostPosition(9)


@UNKNOWN
def test_where_nobody_knows_and_there_is_no_policy_the_position_keeps_waiting(unknown):
    made, subscription, asked = validating("none")
    assert made.on_epoch_end(TP, asked, unknown, NOW_MS) == TRUNCATION._replace(divergent=None)
    assert subscription.validating() == {TP: asked}


@pytest.mark.parametrize("answer", [end(3, 9), end(2, 7), end(-1, -1)])
def test_an_answer_that_a_seek_overtook_moves_nothing(answer):
    made, subscription, asked = validating("earliest")
    subscription.require(TP).seek(1)
    assert made.on_epoch_end(TP, asked, answer, NOW_MS) is None
    assert subscription.require(TP).position == 1
    assert subscription.resetting() == {}


def test_the_error_says_what_was_lost_and_where_to_go_on():
    other = LogTruncation(TopicPartition("t", 1), 5, 3, None)
    error = LogTruncationError([TRUNCATION, other])
    assert isinstance(error, OffsetOutOfRangeError)
    assert error.truncations == (TRUNCATION, other)
    assert error.divergent_offsets == {TP: DIVERGENT}
    assert "t-0" in str(error)
    assert "from offset 7" in str(error)
    assert "offset 9, in leader epoch 3" in str(error)
