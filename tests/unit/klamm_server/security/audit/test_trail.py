"""Tests which events are selected, and the lines made of them."""

from __future__ import annotations

import pytest

from klamm_server.security.audit.events import TEXT_MAX, Category
from klamm_server.security.audit.tallies import MINUTE_MS
from tests.support.audit_events import AuditRecorder, denied


def test_the_audit_selects_events_by_the_configured_categories_and_exclusions() -> None:
    trail = AuditRecorder(
        audit_events=("produce", "management"),
        audit_excluded_principals="User:a; User:CN=b,O=c;",
        audit_excluded_topics=("noise",),
    ).trail
    assert trail.wants(Category.PRODUCE)
    assert trail.wants(Category.DENIED, Category.MANAGEMENT)
    assert not trail.wants(Category.DENIED, Category.AUTHENTICATION)
    assert not trail.is_about("User:a")
    assert not trail.is_about("User:CN=b,O=c")
    assert trail.is_about("User:c")
    assert trail.is_excluded("noise")
    assert not trail.is_excluded("orders")


def test_audit_events_are_written_as_lines_with_their_counts() -> None:
    audit = AuditRecorder()
    for _ in range(3):
        audit.trail.record(denied("x" * 1_000), 5)
    (first,) = audit.events()
    assert first["resources"][0]["name"] == "x" * TEXT_MAX
    audit.trail.end_minutes(5 + MINUTE_MS)
    assert [event["count"] for event in audit.events()] == [2]
    audit.trail.record(denied(), 5 + MINUTE_MS)
    audit.trail.record(denied(), 5 + MINUTE_MS)
    audit.trail.close(6 + MINUTE_MS)
    assert [event["count"] for event in audit.events()] == [1, 1]


def test_equal_events_are_counted_after_the_clock_was_set_back() -> None:
    audit = AuditRecorder()
    audit.trail.record(denied(), 10 * MINUTE_MS)
    audit.trail.record(denied(), 0)
    audit.trail.end_minutes(11 * MINUTE_MS)
    assert [(event["time"], event["count"]) for event in audit.events()] == [(10 * MINUTE_MS, 1), (11 * MINUTE_MS, 1)]


@pytest.mark.parametrize(
    ("policy", "events", "refuses"),
    [("permit", ("management",), False), ("reject", ("management",), True), ("reject", ("produce",), False)],
)
def test_changes_are_refused_only_while_events_of_changes_could_be_dropped(
    policy: str, events: tuple[str, ...], refuses: bool
) -> None:
    audit = AuditRecorder(audit_failure_policy=policy, audit_events=events)
    assert not audit.trail.refuses_changes
    audit.backlog.is_overrun = True
    assert audit.trail.refuses_changes is refuses
    audit.backlog.take_out(0)
    assert not audit.trail.refuses_changes


def test_events_beyond_the_backlogs_bound_are_dropped_and_counted() -> None:
    audit = AuditRecorder()
    number = 0
    while not audit.trail.is_overrun:
        audit.trail.record(denied(f"{number}"), 0)
        number += 1
    assert audit.dropped == 1
    assert audit.backlog.held_bytes < 17 * 1024**2
    audit.events()
    assert not audit.trail.is_overrun
