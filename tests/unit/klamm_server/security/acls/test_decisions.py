"""Tests cached decisions: equal to new ones, also after a change of access control lists, and bounded in memory."""

from __future__ import annotations

import gc
import sys
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.acls import AclBinding, AclDecision, AclOperation, AclPermissionType, PatternType, ResourceType
from klamm_server.metadata.acl_index import AclDraft, AclIndex
from klamm_server.security.acls import decisions as module
from klamm_server.security.acls.authorizer import StandardAuthorizer
from klamm_server.security.acls.decisions import KEPT_NAME_MAX, DecisionBudget, Decisions
from tests.support.acl_strategies import BINDINGS, NAMES, OPERATIONS, RESOURCE_TYPES

ALICE, HERE = "User:alice", "10.0.0.1"
Question = tuple[AclOperation, ResourceType, str]
QUESTIONS = st.tuples(OPERATIONS, RESOURCE_TYPES, NAMES)


@given(st.lists(st.tuples(st.none() | BINDINGS, QUESTIONS), max_size=20))
def test_cached_decisions_equal_those_of_the_authorizer(steps: list[tuple[AclBinding | None, Question]]) -> None:
    authorizer = StandardAuthorizer(super_users=(), allow_everyone_if_no_acl_found=False)
    decisions, acls = Decisions(authorizer, ALICE, HERE), AclIndex()
    for number, (binding, question) in enumerate(steps):
        if binding is not None and binding not in acls:
            draft = AclDraft(acls)
            draft.add(uuid.UUID(int=number), binding)
            acls = draft.finish()
        assert decisions.decide(acls, *question) == authorizer.authorize(acls, ALICE, HERE, *question)


class Counting(StandardAuthorizer):
    """An authorizer that counts its calls."""

    def __init__(self) -> None:
        super().__init__(super_users=(), allow_everyone_if_no_acl_found=True)
        self.asked: list[str] = []

    def authorize(self, *question: Any) -> AclDecision:
        self.asked.append(question[-1])
        return super().authorize(*question)


def test_the_authorizer_is_asked_once_until_the_acls_change() -> None:
    authorizer, acls = Counting(), AclIndex()
    decisions = Decisions(authorizer, ALICE, HERE)
    for _ in range(3):
        decisions.decide(acls, AclOperation.READ, ResourceType.TOPIC, "orders")
    assert authorizer.asked == ["orders"]
    draft = AclDraft(acls)
    deny = AclBinding(
        ResourceType.TOPIC, "orders", PatternType.LITERAL, ALICE, "*", AclOperation.READ, AclPermissionType.DENY
    )
    draft.add(uuid.UUID(int=1), deny)
    assert decisions.decide(draft.finish(), AclOperation.READ, ResourceType.TOPIC, "orders") == (False, deny)
    assert authorizer.asked == ["orders", "orders"]


def test_the_number_of_cached_decisions_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DECISIONS_MAX", 10)
    authorizer, acls = Counting(), AclIndex()
    decisions = Decisions(authorizer, ALICE, HERE)
    names = [f"t{number}" for number in range(11)]
    for name in (*names[:10], *names[:10], names[10], names[10], names[0]):
        decisions.decide(acls, AclOperation.READ, ResourceType.TOPIC, name)
    assert authorizer.asked == [*names, names[0]]


def ask(decisions: Decisions, acls: AclIndex, *names: str) -> None:
    for name in names:
        decisions.decide(acls, AclOperation.READ, ResourceType.TOPIC, name)


def test_a_decision_about_a_name_that_no_topic_can_have_is_not_kept() -> None:
    authorizer, acls = Counting(), AclIndex()
    decisions = Decisions(authorizer, ALICE, HERE)
    longest, longer = "n" * KEPT_NAME_MAX, "n" * (KEPT_NAME_MAX + 1)
    ask(decisions, acls, longest, longest, longer, longer)
    assert authorizer.asked == [longest, longer, longer]
    assert len(decisions) == 1


def test_sessions_share_their_memory() -> None:
    """The session that began its table first loses it, and starts again."""
    budget = DecisionBudget(max_bytes=10_000)
    authorizer, acls = Counting(), AclIndex()
    first, second, third = (Decisions(authorizer, ALICE, HERE, budget) for _ in range(3))
    ask(first, acls, "a", "b")
    ask(second, acls, "a")
    ask(third, acls, *(f"t{number}" for number in range(30)))
    assert 9_000 < budget.held_bytes <= 10_000
    assert (len(first), len(second), len(third)) == (0, 1, 30)
    ask(first, acls, "a", "b")
    assert (len(first), len(second), len(third)) == (2, 0, 30)


def test_a_session_alone_stays_within_the_bytes_of_the_room() -> None:
    budget = DecisionBudget(max_bytes=10_000)
    decisions, acls = Decisions(Counting(), ALICE, HERE, budget), AclIndex()
    for number in range(1_000):
        ask(decisions, acls, f"t{number}")
        assert budget.held_bytes <= 10_000
    assert len(decisions) > 0


def test_a_session_that_has_ended_gives_its_memory_back() -> None:
    budget = DecisionBudget(max_bytes=10_000)
    acls = AclIndex()
    decisions = Decisions(Counting(), ALICE, HERE, budget)
    ask(decisions, acls, "a", "b")
    assert budget.held_bytes > 0
    del decisions
    assert budget.held_bytes == 0


def test_a_session_that_has_decided_nothing_ends_without_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    failures: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", failures.append)
    authorizer = StandardAuthorizer(super_users=(), allow_everyone_if_no_acl_found=False)
    budget = DecisionBudget()
    other = Decisions(authorizer, ALICE, HERE, budget)
    other.decide(AclIndex(), AclOperation.READ, ResourceType.TOPIC, "orders")
    ended = Decisions(authorizer, ALICE, HERE, budget)
    del ended
    gc.collect()
    assert budget.held_bytes
    assert not failures


def test_a_change_of_the_acls_gives_the_memory_back() -> None:
    budget = DecisionBudget(max_bytes=10_000)
    decisions = Decisions(Counting(), ALICE, HERE, budget)
    ask(decisions, AclIndex(), "a", "b")
    before_bytes = budget.held_bytes
    ask(decisions, AclIndex(), "a")
    assert budget.held_bytes == before_bytes / 2
