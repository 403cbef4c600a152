"""Tests parked operations: completion by a change, expiry, and the bound."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from klamm.model import TopicPartition
from klamm_broker.purgatory.purgatory import Parked, Parker, Purgatory

A = TopicPartition("a", 0)
B = TopicPartition("b", 0)
ALICE = Parker("alice")


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
    purgatory.park(on_a, [A], 100, ALICE)
    purgatory.park(on_both, [A, B, A], 100, ALICE)
    purgatory.park(not_ready, [A], 100, ALICE)
    purgatory.park(on_b, [B], 100, ALICE)
    on_a.ready = on_both.ready = on_b.ready = True

    assert purgatory.check_and_complete(A) == 2
    assert [one.endings for one in (on_a, on_both, not_ready, on_b)] == [["completed"], ["completed"], [], []]
    assert len(purgatory) == 2
    purgatory.check_invariants()


def test_an_operation_completes_only_once() -> None:
    purgatory = Purgatory(max_parked=10, start_ms=0)
    operation = Waiting()
    parked = purgatory.park(operation, [A, B], 100, ALICE)
    operation.ready = True
    purgatory.check_and_complete(A)
    purgatory.check_and_complete(B)
    assert purgatory.advance(1_000) == 0
    assert not purgatory.cancel(parked)
    assert operation.endings == ["completed"]


def test_the_deadline_expires_an_operation_and_frees_its_place() -> None:
    purgatory = Purgatory(max_parked=1, start_ms=0)
    operation = Waiting()
    purgatory.park(operation, [A], 500, ALICE)
    assert purgatory.park(Waiting(), [A], 500, ALICE) is None
    assert purgatory.advance(499) == 0
    assert purgatory.advance(500) == 1
    assert operation.endings == ["expired"]
    assert purgatory.check_and_complete(A) == 0
    assert purgatory.park(Waiting(), [A], 1_000, ALICE) is not None
    purgatory.check_invariants()


def fill(purgatory: Purgatory, parker: Parker) -> list[Parked]:
    """Parks operations of one parker until there is no place for it."""
    parked = []
    while (one := purgatory.park(Waiting(), [A], 100, parker)) is not None:
        parked.append(one)
    purgatory.check_invariants()
    return parked


def test_a_user_who_takes_all_places_that_it_may_leaves_some_for_others_and_for_servers() -> None:
    purgatory = Purgatory(max_parked=640, start_ms=0)
    greedy = fill(purgatory, ALICE)
    assert len(greedy) == 420
    assert purgatory.refused_count == 1
    assert all(len(fill(purgatory, Parker(f"modest-{number}"))) >= 10 for number in range(8))
    assert len(fill(purgatory, Parker("broker", is_server=True))) == 420
    for one in greedy:
        assert purgatory.cancel(one)
    assert len(fill(purgatory, ALICE)) > 0


def test_many_users_together_park_at_most_as_many_operations_as_the_bound() -> None:
    purgatory = Purgatory(max_parked=100, start_ms=0)
    for number in range(200):
        fill(purgatory, Parker(f"user-{number}"))
    assert len(purgatory) == 100
    assert purgatory.park(Waiting(), [A], 100, Parker("server", is_server=True)) is not None


def test_a_cancelled_operation_is_neither_completed_nor_expired() -> None:
    purgatory = Purgatory(max_parked=10, start_ms=0)
    operation = Waiting()
    parked = purgatory.park(operation, [A, B], 100, ALICE)
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
            parked.append(purgatory.park(operations[-1], [(A, B)[number % 2], A], now_ms + number, ALICE))
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
