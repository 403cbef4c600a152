"""Tests the parts of an event."""

from __future__ import annotations

import pytest

from klamm.acls import AclDecision, AclOperation, BuiltInRule, ResourceType
from klamm_server.security.audit.events import TEXT_MAX, rule_of
from tests.support.audit_events import denied
from tests.support.callers import allow


def test_texts_of_an_audit_event_are_truncated_to_the_bound() -> None:
    event = denied("t" * TEXT_MAX, client_id="c" * 100_000)
    assert event.within_bounds() == denied("t" * TEXT_MAX, client_id="c" * TEXT_MAX)
    fits = denied()
    assert fits.within_bounds() is fits


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (BuiltInRule.SUPER_USER, "super.users"),
        (BuiltInRule.NO_ACL_FOUND, "default"),
        (BuiltInRule.NO_ACL_ALLOWS, "no ACL allows it"),
        (
            allow(AclOperation.READ, ResourceType.TOPIC, "orders"),
            "ALLOW User:alice READ TOPIC LITERAL 'orders' from *",
        ),
    ],
)
def test_the_rule_of_a_decision_is_written_as_text(rule: BuiltInRule, text: str) -> None:
    assert rule_of(AclDecision(True, rule)) == text
