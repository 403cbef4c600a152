"""Tests that the log, the metrics and the callback report a consumer that lost its position."""

from __future__ import annotations

import asyncio

import pytest

from klamm.consumer import PositionReset
from klamm.consumer.config import ConsumerConfig
from klamm.consumer.offsets.position_resets import PositionResets
from klamm.consumer.position_reset import LostPosition
from klamm.errors import ConfigError
from klamm.model import TopicPartition

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


async def invoke(function, argument) -> None:
    function(argument)


def test_the_reset_callback_is_called_once_for_each_reset():
    heard = []
    resets = PositionResets(ConsumerConfig.parse(group_id="g", on_position_reset=heard.append), invoke)
    assert not resets.are_due
    resets.add(TP, LostPosition(100, 5_860, 8_100), 8_100)
    resets.add(OTHER, LostPosition(9), 4)
    assert resets.are_due
    asyncio.run(resets.deliver())
    assert heard == [
        PositionReset(TP, "g", 100, 5_860, 8_100, 8_100),
        PositionReset(OTHER, "g", 9, -1, -1, 4),
    ]
    assert not resets.are_due
    assert (resets.resets_total, resets.skipped_total) == (2, 8_000)


def test_an_error_of_the_reset_callback_is_raised_and_the_next_reset_is_delivered_later():
    heard = []

    def fail_first(reset: PositionReset) -> None:
        heard.append(reset.topic_partition)
        if len(heard) == 1:
            raise RuntimeError("stop here")

    resets = PositionResets(ConsumerConfig.parse(on_position_reset=fail_first), invoke)
    resets.add(TP, LostPosition(1), 2)
    resets.add(OTHER, LostPosition(1), 2)
    with pytest.raises(RuntimeError, match="stop here"):
        asyncio.run(resets.deliver())
    asyncio.run(resets.deliver())
    assert heard == [TP, OTHER]


def test_a_position_reset_without_a_callback_is_logged_and_counted(caplog):
    resets = PositionResets(ConsumerConfig.parse(), invoke)
    resets.add(TP, LostPosition(100, 5_860, 8_100), 5_860)
    assert not resets.are_due
    assert "a consumer without a group lost its position 100 in t-0" in caplog.text
    assert "starts at 5860 and ends at 8100" in caplog.text
    assert "continues at 5860 and skips 5760 records" in caplog.text
    assert resets.skipped_total == 5_760


def test_a_reset_callback_that_is_not_callable_is_refused():
    with pytest.raises(ConfigError, match=r"on\.position\.reset.*a function that takes a PositionReset"):
        ConsumerConfig.parse(on_position_reset="print")
