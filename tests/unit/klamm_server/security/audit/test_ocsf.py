"""Tests every field of each class of events."""

from __future__ import annotations

import json
from typing import Any

from klamm_server.security.audit.events import Activity, AuditEvent, Category
from klamm_server.security.audit.ocsf import OcsfWriter
from klamm_server.security.audit.tallies import TalliedEvent
from tests.support.audit_events import NODE, denied
from tests.support.callers import ALICE, HOST


def written(event: AuditEvent, times: int = 1, begin_ms: int = 7, end_ms: int = 7) -> dict[str, Any]:
    line = OcsfWriter(NODE).line(TalliedEvent(event, times, begin_ms, end_ms))
    assert b"\n" not in line
    found: dict[str, Any] = json.loads(line)
    assert found["metadata"]["version"] == "1.3.0"
    assert found["metadata"]["product"]["uid"] == NODE
    assert found["type_uid"] == 100 * found["class_uid"] + found["activity_id"]
    assert found["category_uid"] == found["class_uid"] // 1000
    assert (found["time"], found["count"]) == (end_ms, times)
    return found


def test_a_login_is_written_as_an_ocsf_authentication_event() -> None:
    event = AuditEvent(
        Category.AUTHENTICATION, Activity.LOGON, False, ALICE, HOST, mechanism="PLAIN", listener="OUT", detail="why"
    )
    found = written(event)
    assert (found["class_uid"], found["activity_id"], found["status_id"]) == (3002, 1, 2)
    assert found["user"] == {"type": "User", "name": "alice"}
    assert found["src_endpoint"] == {"ip": HOST}
    assert found["dst_endpoint"] == {"name": NODE, "svc_name": "OUT"}
    assert (found["auth_protocol_id"], found["auth_protocol"]) == (99, "PLAIN")
    assert found["status_detail"] == "why"


def test_a_decision_is_written_as_an_ocsf_api_activity_event() -> None:
    found = written(denied(client_id="app"), times=3, begin_ms=1, end_ms=9)
    assert (found["class_uid"], found["activity_id"], found["status_id"]) == (6003, 3, 2)
    assert found["actor"]["user"] == {"type": "User", "name": "alice"}
    assert found["actor"]["authorizations"] == [{"decision": "Denied", "policy": {"name": "no ACL allows it"}}]
    assert found["api"]["operation"] == "PRODUCE"
    assert found["resources"] == [{"type": "TOPIC", "name": "orders"}]
    assert found["src_endpoint"] == {"ip": HOST, "name": "app"}
    assert (found["start_time"], found["end_time"]) == (1, 9)


def test_a_change_of_an_account_is_written_as_an_ocsf_account_change_event() -> None:
    event = AuditEvent(
        Category.MANAGEMENT, Activity.ATTACH_POLICY, True, ALICE, HOST, api="CreateAcls", rule="ALLOW", account="User:b"
    )
    found = written(event)
    assert (found["class_uid"], found["activity_id"], found["status_id"]) == (3001, 7, 1)
    assert found["actor"]["user"]["name"] == "alice"
    assert found["user"] == {"type": "User", "name": "b"}
    assert found["policy"] == {"name": "ACL", "desc": "ALLOW"}
    assert "status_detail" not in found


def test_an_event_with_any_text_is_written_on_one_line() -> None:
    assert written(denied('a\n"b\ud800\x00é'))["resources"][0]["name"] == 'a\n"b\ud800\x00é'
