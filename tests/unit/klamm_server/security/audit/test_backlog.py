"""Tests that lines wait in order and within a bound, and that dropped lines are counted."""

from __future__ import annotations

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from klamm_server.security.audit.backlog import Backlog

MAX_BYTES = 1_000


class Dropped:
    def __init__(self) -> None:
        self.events = 0

    def __call__(self, count: int) -> None:
        self.events += count


def test_lines_stay_in_the_backlog_until_they_have_arrived() -> None:
    backlog = Backlog(Dropped())
    for line in (b"a", b"b", b"c"):
        backlog.add(line, 1)
    assert backlog.first(2) == [b"a", b"b"]
    assert backlog.first(0) == [b"a"], "one goes, whatever its size"
    backlog.take_out(2)
    assert backlog.first(100) == [b"c"]
    backlog.take_out(1)
    assert backlog.first(100) == []
    assert len(backlog) == backlog.held_bytes == 0


def test_a_full_backlog_counts_as_overrun_until_half_of_it_is_free() -> None:
    dropped = Dropped()
    backlog = Backlog(dropped, MAX_BYTES)
    while not backlog.is_overrun:
        backlog.add(b"x" * 50, 7)
    assert dropped.events == 7
    assert len(backlog) == 10
    backlog.take_out(4)
    assert backlog.is_overrun
    backlog.take_out(1)
    assert not backlog.is_overrun


@given(st.lists(st.one_of(st.integers(0, 400), st.just(-1))))
def test_every_dropped_line_is_counted(steps: list[int]) -> None:
    """A step is the length of a new line, or -1 if the waiting lines arrive."""
    dropped = Dropped()
    backlog, expected = Backlog(dropped, MAX_BYTES), deque[bytes]()
    added = arrived = 0
    for number, step in enumerate(steps):
        if step < 0:
            lines = backlog.first(500)
            assert lines == list(expected)[: len(lines)]
            backlog.take_out(len(lines))
            arrived += len(lines)
            for _ in lines:
                expected.popleft()
            continue
        line = f"{number}".encode().ljust(step, b".")
        before = dropped.events
        backlog.add(line, 1)
        added += 1
        if dropped.events == before:
            expected.append(line)
        assert backlog.held_bytes <= MAX_BYTES
    assert added == arrived + len(backlog) + dropped.events
    assert backlog.first(2**20) == list(expected)
