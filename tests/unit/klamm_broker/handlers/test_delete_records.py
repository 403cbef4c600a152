"""Tests changes of a broker that its audit could not record."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from klamm.acls import AclOperation, ResourceType
from klamm.errors import ErrorCode
from klamm_broker.handlers.delete_records import DeleteRecordsHandler, RecordDeletion
from klamm_broker.handlers.log_dirs import LogDirsHandler, ReplicaMove
from klamm_server.security.audit.decisions import SessionAudit
from klamm_server.security.session import CALLER
from tests.support.audit_events import AuditRecorder
from tests.support.callers import ALICE, HOST, allow, session_of

NOTHING: Any = None


@pytest.fixture(autouse=True)
def audited_caller() -> Iterator[None]:
    """Makes ALICE the caller, at a server whose audit is full."""
    audit = AuditRecorder(audit_failure_policy="reject")
    audit.backlog.is_overrun = True
    session = session_of(allow(AclOperation.DELETE, ResourceType.TOPIC, "orders"))
    session.audit = SessionAudit(audit.trail, lambda: 0, ALICE, HOST)
    token = CALLER.set(session)
    yield
    CALLER.reset(token)


def test_no_records_are_deleted_while_the_audit_is_full() -> None:
    handler = DeleteRecordsHandler(NOTHING, NOTHING)
    deletions = [RecordDeletion("orders", 0, 5), RecordDeletion("secret", 0, 5)]
    answers = asyncio.run(handler.delete_records(deletions, timeout_ms=0))
    codes = [ErrorCode.POLICY_VIOLATION, ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert [answer.error_code for answer in answers] == codes


def test_no_replica_moves_while_the_audit_is_full() -> None:
    handler = LogDirsHandler(NOTHING, NOTHING, NOTHING)
    (answer,) = asyncio.run(handler.alter_replica_log_dirs([ReplicaMove("orders", 0, "/disk")]))
    assert answer.error_code is ErrorCode.POLICY_VIOLATION
