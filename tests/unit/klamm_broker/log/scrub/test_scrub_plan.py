"""Tests the order of scrubbed segments: none is left out, and no pass begins twice."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from klamm.model import TopicPartition
from klamm_broker.log.files.checkpoints import CheckpointError
from klamm_broker.log.scrub.scrub_plan import (
    FINISHED_MAX,
    RETRY_MS,
    LogState,
    ScrubMark,
    ScrubPlan,
    read_states,
    write_states,
)
from klamm_server.runtime.disk import Disk

A, B, C = (TopicPartition(topic, 0) for topic in "abc")
WEEK_MS = 7 * 24 * 3_600_000


class Piece(NamedTuple):
    base_offset: int
    end_offset: int


class World:
    """Logs with their sealed segments, and the plan that works on them."""

    def __init__(self, **segment_counts: int) -> None:
        self.logs = {
            TopicPartition(topic, 0): [Piece(10 * n, 10 * n + 10) for n in range(count)]
            for topic, count in segment_counts.items()
        }
        self.plan = ScrubPlan(WEEK_MS, {})
        self.now_ms = 10**12

    def segments(self, name: TopicPartition) -> Sequence[Piece]:
        return self.logs.get(name, [])

    def next(self) -> tuple[TopicPartition, Piece] | None:
        return self.plan.next(self.logs, self.segments, self.now_ms)

    def step(self, *, is_damaged: bool = False) -> tuple[str, int] | None:
        """Checks one segment. Returns its topic and base offset."""
        due = self.next()
        if due is None:
            return None
        self.plan.checked(*due, is_damaged=is_damaged, now_ms=self.now_ms)
        return due[0].topic, due[1].base_offset

    def run(self) -> list[tuple[str, int]]:
        steps = []
        while (step := self.step()) is not None:
            steps.append(step)
        return steps

    def restart(self) -> None:
        self.plan = ScrubPlan(WEEK_MS, {name: self.plan.state(name) for name in self.logs})


def test_every_segment_is_checked_once_per_interval() -> None:
    world = World(a=2, b=0, c=1)
    all_of_them = [("a", 0), ("a", 10), ("c", 0)]
    assert world.run() == all_of_them
    assert world.plan.mark(B).finished_ms == world.now_ms
    world.now_ms += WEEK_MS - 1
    assert world.run() == []
    world.now_ms += 1
    assert world.run() == all_of_them


def test_a_scrub_pass_continues_after_a_restart() -> None:
    world = World(a=1, b=3)
    assert [world.step(), world.step()] == [("a", 0), ("b", 0)]
    world.restart()
    world.now_ms += 1_000
    assert world.run() == [("b", 10), ("b", 20)]


def test_a_scrub_pass_excludes_segments_that_are_sealed_after_its_start() -> None:
    world = World(a=2)
    assert world.step() == ("a", 0)
    world.logs[A].append(Piece(20, 30))
    assert world.run() == [("a", 10)]


def test_deleted_or_compacted_segments_do_not_stop_a_scrub_pass() -> None:
    world = World(a=6)
    assert world.step() == ("a", 0)
    world.logs[A] = [Piece(20, 50), Piece(50, 60)]
    assert world.run() == [("a", 20), ("a", 50)]


def test_requested_logs_are_checked_first_and_from_their_start() -> None:
    world = World(a=3, b=2, c=1)
    assert world.step() == ("a", 0)
    world.plan.ask([C, A])
    assert world.plan.is_requested(A)
    assert [world.step() for _ in range(4)] == [("c", 0), ("a", 0), ("a", 10), ("a", 20)]
    assert world.run() == [("b", 0), ("b", 10)]
    assert not world.plan.is_requested(A)


def test_a_requested_log_is_checked_even_if_no_pass_is_due() -> None:
    world = World(a=1, b=1)
    world.run()
    world.plan.ask([B])
    assert world.run() == [("b", 0)]


def test_a_step_of_the_plan_skips_a_bounded_number_of_logs_without_sealed_segments() -> None:
    world = World(**{f"t{number}": 0 for number in range(FINISHED_MAX)}, z=1)
    assert world.next() is None
    assert world.plan.has_more
    assert world.run() == [("z", 0)]
    assert not world.plan.has_more


def test_without_a_scrub_interval_only_requested_logs_are_checked() -> None:
    world = World(a=1, b=1)
    world.plan = ScrubPlan(-1, {})
    assert world.run() == []
    world.plan.ask([A])
    assert world.run() == [("a", 0)]


def test_a_damaged_segment_is_retried_first_even_after_a_restart() -> None:
    world = World(a=3)
    world.step()
    assert world.step(is_damaged=True) == ("a", 10)
    assert world.run() == [("a", 20)]
    assert (world.plan.damaged_count, world.plan.damaged(A)) == (1, (10,))
    world.now_ms += RETRY_MS - 1
    assert world.run() == []
    world.now_ms += 1
    assert world.step(is_damaged=True) == ("a", 10)
    assert world.step() is None
    world.restart()
    assert world.step() == ("a", 10)
    assert world.plan.damaged_count == 0


def test_a_clock_that_was_set_back_delays_no_check() -> None:
    world = World(a=2)
    world.step(is_damaged=True)
    world.step()
    assert world.step() is None
    world.now_ms -= 10 * WEEK_MS
    assert world.run() == [("a", 0), ("a", 0), ("a", 10)]


def test_the_damage_of_a_deleted_segment_and_the_marks_of_a_deleted_log_are_forgotten() -> None:
    world = World(a=2, b=1)
    world.step(is_damaged=True)
    world.run()
    world.logs[A] = [Piece(10, 20)]
    world.now_ms += RETRY_MS
    assert world.run() == []
    assert world.plan.damaged_count == 0
    world.plan.ask([B])
    world.plan.retain({A})
    assert world.plan.mark(B) == ScrubMark()
    assert not world.plan.is_requested(B)


def test_the_scrub_checkpoint_survives_a_round_trip_and_damage_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "scrub-checkpoint")
    states = {A: LogState(ScrubMark(5, 20, 100, -1), (5, 7)), B: LogState(ScrubMark(-1, -1, 50, 60), ())}
    assert read_states(Disk(), path) == {}
    write_states(Disk(), path, states)
    assert read_states(Disk(), path) == states
    (tmp_path / "scrub-checkpoint").write_text("0\n1\na 0 5 20 100 -1 5;7\n")
    with pytest.raises(CheckpointError):
        read_states(Disk(), path)
