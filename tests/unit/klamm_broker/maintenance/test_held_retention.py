"""Tests retention of a leader's log that waits for groups, with real files and given answers of the coordinators."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from klamm.model import TopicPartition
from klamm.records.encoder import encode_batch
from klamm_broker.io.metrics import HOLD_UNREAD_DELETED
from klamm_broker.log.cleaning.retention_hold import NO_GROUP, LowOffset
from klamm_broker.log.log_config import LogConfig
from klamm_broker.log.partition.pending_deletion import PendingDeletion
from klamm_broker.maintenance.held_partitions import HeldPartition
from klamm_broker.maintenance.held_retention import HeldRetention
from klamm_broker.replica.leadership import FollowerFetch
from klamm_server.config.broker_configs import BrokerConfig
from klamm_server.metrics.prometheus import registry
from tests.support.led_partition import NAME, OTHER, THIS, LedPartition, led_by

COUNT = 60
NOW = 10_000
CONFIG = {
    "segment_bytes": 2_048,
    "retention_ms": 1_000,
    "retention_hold_groups": ("g",),
    "retention_hold_max_ms": -1,
}


class Offsets:
    """Coordinators that give one answer, after something happened to the broker."""

    def __init__(self) -> None:
        self.answer: LowOffset | None = LowOffset(0, "g")
        self.asked: list[Mapping[TopicPartition, tuple[str, ...]]] = []
        self.meanwhile: Callable[[], object] = lambda: None

    async def lowest(self, holds: Mapping[TopicPartition, tuple[str, ...]]) -> dict[TopicPartition, LowOffset | None]:
        self.asked.append(holds)
        self.meanwhile()
        return dict.fromkeys(holds, self.answer)


class FixedClock:
    def wall_ms(self) -> int:
        return NOW


class Leader(LedPartition):
    """A leader of a log of several segments, whose records have expired."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, **CONFIG)
        self.log = self.partition.log
        for number in range(COUNT):
            batch = bytes(encode_batch([(number, None, b"v" * 100, ())]))
            self.log.append_as_leader(batch, leader_epoch=1, now_ms=number)
        read = FollowerFetch(
            replica_id=OTHER,
            broker_epoch=1,
            session_id=1,
            current_leader_epoch=1,
            fetch_offset=COUNT,
            last_fetched_epoch=1,
            log_start_offset=0,
        )
        self.partition.on_follower_fetch(read, now_ms=NOW)
        assert self.partition.high_watermark == COUNT
        self.offsets = Offsets()
        self.retired: list[PendingDeletion] = []
        clock: Any = FixedClock()
        self.retention = HeldRetention(
            self.replicas,
            BrokerConfig(node_id=THIS),
            clock,
            offsets=self.offsets,
            retire=self.retired.append,
            on_disk_full=lambda log_dir: None,
        )

    def check(self, answer: LowOffset | None) -> int:
        """Runs a check with this answer, and returns the log start offset."""
        self.offsets.answer = answer
        asyncio.run(self.retention.check())
        return self.log.log_start_offset

    def set(self, **changes: Any) -> None:
        self.log.config = LogConfig(**(CONFIG | changes))


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[Leader]:
    leader = Leader(tmp_path)
    assert len(leader.log.segments.base_offsets) > 3
    yield leader
    leader.close()


def unread() -> float:
    return HOLD_UNREAD_DELETED.labels(NAME.topic).value


def shown(metric: str) -> float | None:
    """Returns what `/metrics` shows for the group and the partition, or None if it shows nothing."""
    labels = {"topic": NAME.topic, "partition": str(NAME.partition), "group": "g"}
    return registry().get_sample_value(f"klamm_broker_partition_retention_{metric}", labels)


def test_only_what_the_groups_have_read_is_deleted(leader: Leader) -> None:
    second, third = leader.log.segments.base_offsets[1:3]
    assert leader.check(LowOffset(second - 1, "g")) == 0
    assert leader.check(LowOffset(third - 1, "g")) == second
    assert leader.offsets.asked == [{NAME: ("g",)}] * 2
    assert len(leader.retired) == 1
    assert leader.check(NO_GROUP) == COUNT
    leader.check(None)
    assert len(leader.offsets.asked) == 3, "nothing is left to ask for"


def test_nothing_is_deleted_while_the_coordinators_cannot_tell(leader: Leader) -> None:
    assert leader.check(None) == 0
    assert leader.retention.held.partitions == {NAME: HeldPartition(None, leader.log.segments.size_bytes, None)}


def test_retention_of_the_replica_deletes_nothing_by_itself(leader: Leader) -> None:
    second = leader.log.segments.base_offsets[1]
    assert leader.log.retention.apply(now_ms=NOW, high_watermark=COUNT) is None
    leader.log.advance_log_start(second, high_watermark=COUNT)
    assert leader.log.retention.apply(now_ms=NOW, high_watermark=COUNT) is not None
    assert leader.log.segments.base_offsets[0] == second


@pytest.mark.parametrize(
    "change",
    [
        lambda leader: leader.replicas.apply(leader.partition, led_by(OTHER, 2)),
        lambda leader: leader.replicas.apply(leader.partition, led_by(THIS, 2)),
        lambda leader: leader.set(retention_hold_groups=("g", "h")),
    ],
    ids=["another leader", "another epoch", "another hold"],
)
def test_an_answer_counts_only_for_the_state_for_which_it_was_asked(
    leader: Leader, change: Callable[[Leader], object]
) -> None:
    leader.offsets.meanwhile = lambda: change(leader)
    assert leader.check(LowOffset(COUNT, "g")) == 0


def test_a_follower_does_not_ask(leader: Leader) -> None:
    leader.replicas.apply(leader.partition, led_by(OTHER, 2))
    assert leader.check(NO_GROUP) == 0
    assert leader.offsets.asked == []


@pytest.mark.parametrize(
    ("answer", "reader"),
    [
        (LowOffset(3, "slow"), "group=slow committed_offset=3"),
        (None, "(no coordinator could tell what the groups have read)"),
    ],
)
def test_a_bound_deletes_unread_records_and_says_so(
    leader: Leader, answer: LowOffset | None, reader: str, caplog: pytest.LogCaptureFixture
) -> None:
    leader.set(retention_hold_max_ms=5_000)
    before = unread()
    with caplog.at_level(logging.WARNING):
        assert leader.check(answer) == COUNT
    assert unread() - before == COUNT - (3 if answer else 0)
    (line,) = [record.getMessage() for record in caplog.records]
    assert f"partition={NAME}" in line
    assert line.endswith(reader)


def test_the_held_bytes_and_the_time_left_are_shown(leader: Leader) -> None:
    leader.set(retention_hold_max_ms=NOW + 2_000)
    last_ms = leader.log.segments.items[0].indexes.largest.timestamp_ms
    leader.check(LowOffset(0, "g"))
    assert shown("held_bytes") == leader.log.segments.size_bytes
    assert shown("hold_left_seconds") == (last_ms + 2_000) / 1000
    leader.check(LowOffset(COUNT, "g"))
    assert shown("held_bytes") is shown("hold_left_seconds") is None
