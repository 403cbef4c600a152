"""Tests cached decisions: equal to new ones, also after a change of access control lists, and bounded in number."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.acls import AclBinding, AclDecision, AclOperation, AclPermissionType, PatternType, ResourceType
from klamm_server.metadata.acl_index import AclDraft, AclIndex
from klamm_server.security.acls import decisions as module
from klamm_server.security.acls.authorizer import StandardAuthorizer
from klamm_server.security.acls.decisions import Decisions
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
