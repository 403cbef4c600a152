"""Tests parked operations: completion by a change, expiry, and the bound."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.model import TopicPartition
from klamm_broker.purgatory.purgatory import Parked, Purgatory

A = TopicPartition("a", 0)
B = TopicPartition("b", 0)


class Waiting:
    """An operation that completes once it is `ready`, and remembers how it ended."""

    def __init__(self) -> None:
        self.ready = False
        self.endings: list[str] = []

    def try_complete(self) -> bool:
        if self.ready:
            self.endings.append("completed")
        return self.ready

    def on_expiration(self) -> None:
        self.endings.append("expired")


def test_a_change_completes_only_ready_operations_that_watch_its_key() -> None:
    purgatory = Purgatory(max_parked=10, start_ms=0)
    on_a, on_both, not_ready, on_b = Waiting(), Waiting(), Waiting(), Waiting()
    purgatory.park(on_a, [A], 100)
    purgatory.park(on_both, [A, B, A], 100)
    purgatory.park(not_ready, [A], 100)
    purgatory.park(on_b, [B], 100)
    on_a.ready = on_both.ready = on_b.ready = True

    assert purgatory.check_and_complete(A) == 2
    assert [one.endings for one in (on_a, on_both, not_ready, on_b)] == [["completed"], ["completed"], [], []]
    assert len(purgatory) == 2
    purgatory.check_invariants()


def test_an_operation_completes_only_once() -> None:
    purgatory = Purgatory(max_parked=10, start_ms=0)
    operation = Waiting()
    parked = purgatory.park(operation, [A, B], 100)
    operation.ready = True
    purgatory.check_and_complete(A)
    purgatory.check_and_complete(B)
    assert purgatory.advance(1_000) == 0
    assert not purgatory.cancel(parked)
    assert operation.endings == ["completed"]


def test_the_deadline_expires_an_operation_and_frees_its_place() -> None:
    purgatory = Purgatory(max_parked=1, start_ms=0)
    operation = Waiting()
    purgatory.park(operation, [A], 500)
    assert purgatory.is_full
    assert purgatory.advance(499) == 0
    assert purgatory.advance(500) == 1
    assert operation.endings == ["expired"]
    assert not purgatory.is_full
    assert purgatory.check_and_complete(A) == 0


def test_parking_an_operation_beyond_the_bound_is_an_assertion_error() -> None:
    purgatory = Purgatory(max_parked=1, start_ms=0)
    purgatory.park(Waiting(), [A], 100)
    with pytest.raises(AssertionError):
        purgatory.park(Waiting(), [A], 100)


def test_a_cancelled_operation_is_neither_completed_nor_expired() -> None:
    purgatory = Purgatory(max_parked=10, start_ms=0)
    operation = Waiting()
    parked = purgatory.park(operation, [A, B], 100)
    operation.ready = True
    assert purgatory.cancel(parked)
    assert purgatory.check_and_complete(A) == 0
    assert purgatory.advance(1_000) == 0
    assert operation.endings == []
    assert purgatory.next_deadline_ms() is None


@given(st.lists(st.tuples(st.sampled_from(["park", "ready", "check", "cancel", "advance"]), st.integers(0, 20))))
def test_every_operation_ends_exactly_once_whatever_happens(steps: list[tuple[str, int]]) -> None:
    purgatory = Purgatory(max_parked=1_000, start_ms=0)
    operations: list[Waiting] = []
    parked: list[Parked] = []
    cancelled = 0
    now_ms = 0
    for step, number in steps:
        if step == "park":
            operations.append(Waiting())
            parked.append(purgatory.park(operations[-1], [(A, B)[number % 2], A], now_ms + number))
        elif step == "ready" and number < len(operations):
            operations[number].ready = True
        elif step == "check":
            purgatory.check_and_complete((A, B)[number % 2])
        elif step == "cancel" and number < len(parked):
            cancelled += purgatory.cancel(parked[number])
        elif step == "advance":
            now_ms += number
            purgatory.advance(now_ms)
        purgatory.check_invariants()
    purgatory.advance(now_ms + 100)
    assert all(len(operation.endings) <= 1 for operation in operations)
    assert sum(len(operation.endings) for operation in operations) == len(operations) - cancelled
    assert len(purgatory) == 0
