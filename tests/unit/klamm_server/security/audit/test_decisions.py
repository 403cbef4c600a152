"""Tests the audit events of a session's decisions: only wanted ones, and each once a minute."""

from __future__ import annotations

import pytest

from klamm.acls import CLUSTER_NAME, AclOperation, ResourceType
from klamm.errors import EXCEPTIONS, ErrorCode
from klamm_server.security.acls.authorizer import StandardAuthorizer
from klamm_server.security.acls.decisions import DecisionBudget
from klamm_server.security.audit.decisions import TALLIES_MAX, Call, SessionAudit
from klamm_server.security.audit.tallies import MINUTE_MS
from klamm_server.security.needs import DESCRIBE_GROUP, WRITE_TOPIC
from klamm_server.security.session import CALL, CALLER, Session
from tests.support.audit_events import AuditRecorder, short
from tests.support.callers import ALICE, HOST, allow, index_of

WRITE_ORDERS = allow(AclOperation.WRITE, ResourceType.TOPIC, "orders")
ALL_EVENTS = ("authentication", "authorization.denied", "authorization.allowed", "produce", "consume", "management")


class AuditedSession(AuditRecorder):
    """A session of ALICE at the time `now_ms`, with the right to write to `orders`."""

    def __init__(self, **settings: object) -> None:
        super().__init__(**settings)
        self.now_ms = 0
        index = index_of([WRITE_ORDERS])
        authorizer = StandardAuthorizer(super_users=(), allow_everyone_if_no_acl_found=False)
        self.audit = SessionAudit(self.trail, lambda: self.now_ms, ALICE, HOST)
        self.session = Session(authorizer, lambda: index, ALICE, HOST, self.audit)

    def may_write(self, topic: str) -> bool:
        return self.session.may(AclOperation.WRITE, ResourceType.TOPIC, topic)


def test_a_denied_operation_is_audited_with_its_call_and_rule() -> None:
    audited = AuditedSession()
    token = CALL.set(Call("PRODUCE", "app"))
    assert not audited.may_write("payments")
    CALL.reset(token)
    (event,) = audited.events()
    assert short(event) == (6003, False, ALICE, "PRODUCE", "payments", 1)
    assert event["src_endpoint"] == {"ip": HOST, "name": "app"}
    assert event["actor"]["authorizations"][0]["policy"]["name"] == "default"
    assert event["unmapped"] == {"operation": "WRITE"}


def test_allowed_operations_are_not_audited_by_default() -> None:
    audited = AuditedSession()
    assert audited.may_write("orders")
    assert audited.events() == []


def test_a_denied_description_in_a_listing_is_not_audited() -> None:
    audited = AuditedSession()
    assert not audited.session.may_be_shown(AclOperation.DESCRIBE, ResourceType.TOPIC, "payments")
    assert audited.events() == []


def test_a_busy_producer_makes_one_audit_event_a_minute() -> None:
    audited = AuditedSession(audit_events=("produce",))
    for _ in range(600):
        assert audited.may_write("orders")
        audited.now_ms += 500
        audited.trail.end_minutes(audited.now_ms)
    assert [event["count"] for event in audited.events()] == [1, 119, 120, 120, 120, 120]


def test_each_decision_is_audited_in_its_own_category_only() -> None:
    for category, wanted in {
        "produce": (AclOperation.WRITE, "orders"),
        "authorization.allowed": (AclOperation.DESCRIBE, "orders"),
        "authorization.denied": (AclOperation.READ, "orders"),
    }.items():
        for chosen in ALL_EVENTS:
            audited = AuditedSession(audit_events=(chosen,))
            audited.session.may(wanted[0], ResourceType.TOPIC, wanted[1])
            assert len(audited.events()) == (chosen == category), (category, chosen)


def test_decisions_about_excluded_topics_are_not_audited() -> None:
    audited = AuditedSession(audit_events=ALL_EVENTS, audit_excluded_topics=("orders", "payments"))
    audited.may_write("orders")
    audited.may_write("payments")
    assert audited.events() == []


def test_a_denial_of_several_sufficient_operations_is_audited_once() -> None:
    audited = AuditedSession()
    assert not audited.session.may_with_cluster(AclOperation.ALTER, AclOperation.CLUSTER_ACTION)
    (event,) = audited.events()
    assert short(event) == (6003, False, ALICE, "", CLUSTER_NAME, 1)
    assert event["unmapped"] == {"operation": "CLUSTER_ACTION"}


def test_an_early_refusal_is_audited_once_and_an_early_permission_is_left_to_the_next_server() -> None:
    audited = AuditedSession(audit_events=ALL_EVENTS)
    token = CALLER.set(audited.session)
    try:
        WRITE_TOPIC.refuse_early("orders")
        assert audited.events() == []
        with pytest.raises(EXCEPTIONS[ErrorCode.GROUP_AUTHORIZATION_FAILED]):
            DESCRIBE_GROUP.refuse_early("g")
    finally:
        CALLER.reset(token)
    (event,) = audited.events()
    assert short(event) == (6003, False, ALICE, "", "g", 1)


def test_the_number_of_tallies_of_a_session_is_bounded() -> None:
    audited = AuditedSession(audit_events=("authorization.allowed",))
    index = index_of([allow(AclOperation.ALL, ResourceType.GROUP, "*")])
    authorizer = StandardAuthorizer(super_users=(), allow_everyone_if_no_acl_found=False)
    session = Session(authorizer, lambda: index, ALICE, HOST, audited.audit)
    for number in range(TALLIES_MAX + 1):
        assert session.may(AclOperation.READ, ResourceType.GROUP, f"{number}")
    assert len(audited.audit._allowed) == 1
    assert session.may(AclOperation.READ, ResourceType.GROUP, "0")
    audited.trail.end_minutes(MINUTE_MS)
    assert sum(event["count"] for event in audited.events()) == TALLIES_MAX + 2


def test_the_memory_of_the_tallies_of_all_sessions_is_bounded() -> None:
    audited = AuditedSession(audit_events=("authorization.allowed",))
    audited.trail.budget = budget = DecisionBudget(max_bytes=100_000)
    index = index_of([allow(AclOperation.ALL, ResourceType.GROUP, "*")])
    authorizer = StandardAuthorizer(super_users=(), allow_everyone_if_no_acl_found=False)
    audits = [SessionAudit(audited.trail, lambda: 0, ALICE, HOST) for _ in range(20)]
    sessions = [Session(authorizer, lambda: index, ALICE, HOST, audit) for audit in audits]
    for session in sessions:
        for number in range(30):
            assert session.may(AclOperation.READ, ResourceType.GROUP, f"{number}")
            assert budget.held_bytes <= 100_000
    assert [len(audit._allowed) for audit in (audits[0], audits[-1])] == [0, 30]
    audited.trail.close(0)
    assert sum(event["count"] for event in audited.events()) == 20 * 30


@pytest.mark.parametrize(("client_id", "group"), [("x" * 250, "g"), ("c", "x" * 249), ("x" * 125, "x" * 125)])
def test_no_long_client_id_or_name_is_kept(client_id: str, group: str) -> None:
    audited = AuditedSession(audit_events=("authorization.allowed",))
    index = index_of([allow(AclOperation.ALL, ResourceType.GROUP, "*")])
    authorizer = StandardAuthorizer(super_users=(), allow_everyone_if_no_acl_found=False)
    session = Session(authorizer, lambda: index, ALICE, HOST, audited.audit)
    token = CALL.set(Call("HEARTBEAT", client_id))
    for _ in range(3):
        assert session.may(AclOperation.READ, ResourceType.GROUP, group)
    CALL.reset(token)
    assert not audited.audit._allowed
    audited.trail.close(0)
    assert [event["count"] for event in audited.events()] == [1, 2]
