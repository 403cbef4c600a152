"""Tests that decisions are logged in the words of Kafka's authorizer, one line for each."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from klamm_server.config.server_config import ServiceConfig, load
from klamm_server.runtime.clock import SystemClock
from klamm_server.security.audit.events import Activity, AuditEvent, Category
from klamm_server.security.audit.ocsf import OcsfWriter
from klamm_server.security.audit.tallies import TalliedEvent
from klamm_server.security.auditor import auditor_of
from klamm_server.security.authorizer_log import AuthorizerLog, authorizer_line
from tests.support.audit_events import NODE, denied
from tests.support.callers import ALICE, HOST


def line(event: AuditEvent, times: int = 1) -> str:
    return authorizer_line(OcsfWriter(NODE).line(TalliedEvent(event, times, 7, 1_700_000_000_042)))


def test_a_denied_decision_is_logged_with_kafkas_sentence() -> None:
    assert line(denied(), times=3) == (
        "[2023-11-14 22:13:20,042] INFO Principal = User:alice is Denied operation = WRITE from host = 10.0.0.1"
        " on resource = Topic:LITERAL:orders for request = Produce with resourceRefCount = 3"
        " based on rule DefaultDeny (kafka.authorizer.logger)"
    )


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ("super.users", "SuperUser"),
        ("default", "DefaultAllow"),
        ("ALLOW User:alice WRITE", "MatchingAcl(acl=ALLOW User:alice WRITE)"),
    ],
)
def test_an_allowed_decision_is_logged_at_debug_level_with_its_rule(rule: str, told: str) -> None:
    event = denied()._replace(is_allowed=True, rule=rule, api="EndTxn", resource_type="TRANSACTIONAL_ID")
    found = line(event)
    assert " DEBUG Principal = User:alice is Allowed operation = WRITE " in found
    assert " on resource = TransactionalId:LITERAL:orders for request = EndTxn with " in found
    assert found.endswith(f" based on rule {told} (kafka.authorizer.logger)")


def test_names_of_clients_cannot_fake_lines() -> None:
    assert "Topic:LITERAL:a\\nPrincipal = é for" in line(denied("a\nPrincipal = é"))


def test_logins_and_changes_have_no_line() -> None:
    assert not line(AuditEvent(Category.AUTHENTICATION, Activity.LOGON, True, ALICE, HOST))
    assert not line(AuditEvent(Category.MANAGEMENT, Activity.CREATE, True, ALICE, HOST))
    assert not line(AuditEvent(Category.MANAGEMENT, Activity.DELETE, True, ALICE, HOST, account="User:bob"))


def test_the_setting_adds_the_log_to_the_outputs_of_the_audit(tmp_path: Path) -> None:
    path = tmp_path / "kafka-authorizer.log"
    given = {
        "node.id": "1",
        "audit.enable": "true",
        "audit.output": "authorizer",
        "audit.authorizer.log.file": str(path),
    }

    async def run() -> None:
        auditor = auditor_of(load(ServiceConfig, given), "broker", SystemClock())
        assert auditor is not None
        auditor.trail.record(denied(), auditor.now_ms())
        auditor.logged_in(ALICE, HOST, "PLAIN", "OUT")
        await auditor.close()

    asyncio.run(run())
    (written,) = path.read_text().splitlines()
    assert "Principal = User:alice is Denied" in written


def test_lines_without_a_decision_are_not_written(tmp_path: Path) -> None:
    async def run() -> None:
        log = AuthorizerLog(str(tmp_path / "log"))
        change = AuditEvent(Category.MANAGEMENT, Activity.CREATE, True, ALICE, HOST)
        await log.write([OcsfWriter(NODE).line(TalliedEvent(change, 1, 1, 1))])
        await log.close()

    asyncio.run(run())
    assert (tmp_path / "log").read_text() == ""
