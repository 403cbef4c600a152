"""Makes events of an audit, and reads the lines that the audit trail writes for them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from klamm_server.config.audit_settings import AuditSettings
from klamm_server.config.server_config import ServiceConfig, load
from klamm_server.runtime.clock import SystemClock
from klamm_server.security.audit.backlog import Backlog
from klamm_server.security.audit.events import Activity, AuditEvent, Category
from klamm_server.security.audit.trail import AuditTrail
from klamm_server.security.auditor import Auditor
from tests.support.callers import ALICE, HOST

NODE = "broker-1"


def denied(topic: str = "orders", *, client_id: str = "") -> AuditEvent:
    """Returns the event that ALICE was denied a write to a topic."""
    return AuditEvent(
        Category.DENIED,
        Activity.UPDATE,
        False,
        ALICE,
        HOST,
        client_id=client_id,
        api="PRODUCE",
        operation="WRITE",
        resource_type="TOPIC",
        resource_name=topic,
        rule="no ACL allows it",
    )


class AuditRecorder:
    """An audit trail and all events that it has written. Settings are fields of AuditSettings."""

    def __init__(self, **settings: Any) -> None:
        self.dropped = 0
        self.backlog = Backlog(self._on_dropped)
        self.trail = AuditTrail(AuditSettings(audit_enable=True, **settings), NODE, [self.backlog])

    def events(self) -> list[dict[str, Any]]:
        """Returns the events since the last call."""
        lines = self.backlog.first(2**30)
        self.backlog.take_out(len(lines))
        return [json.loads(line) for line in lines]

    def _on_dropped(self, count: int) -> None:
        self.dropped += count


class AuditedServer:
    """An auditor with these settings, and its events."""

    def __init__(self, **settings: str) -> None:
        self.events: list[dict[str, Any]] = []
        given = {"node.id": "1", "audit.enable": "true", **settings}
        self.auditor = Auditor(load(ServiceConfig, given), NODE, SystemClock(), {"out": self})

    async def write(self, lines: Sequence[bytes]) -> None:
        self.events += map(json.loads, lines)

    async def close(self) -> None:
        """Does nothing, because nothing is open."""


def short(event: Mapping[str, Any]) -> tuple[object, ...]:
    """Returns the parts of an event that tests compare: class, success, user, operation, names of resources, and
    count."""
    user = event["user"] if "user" in event and "actor" not in event else event["actor"]["user"]
    resources: Iterable[Mapping[str, str]] = event.get("resources", ())
    return (
        event["class_uid"],
        event["status_id"] == 1,
        f"{user['type']}:{user['name']}",
        event.get("api", {}).get("operation", ""),
        *(resource["name"] for resource in resources),
        event["count"],
    )
