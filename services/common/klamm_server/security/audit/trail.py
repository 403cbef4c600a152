"""Turns audit events into lines. The settings select events, and equal events are counted together. The lines are added
to the backlog of each output."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from klamm_server.config.audit_settings import REJECT, AuditSettings
from klamm_server.security.acls.decisions import DecisionBudget
from klamm_server.security.audit.backlog import Backlog
from klamm_server.security.audit.events import AuditEvent, Category
from klamm_server.security.audit.ocsf import OcsfWriter
from klamm_server.security.audit.tallies import TalliedEvent, Tallies, Tally

KEPT_MAX_BYTES: Final = 16 * 1024**2
"""The maximum of what all sessions keep of their tallies. If another one needs room, the session that has kept its
tallies for the longest time forgets them, and its next operations take a little longer."""


class AuditTrail:
    """The audit trail of the server that `node` names. Times are of the wall clock, in milliseconds."""

    def __init__(self, settings: AuditSettings, node: str, backlogs: Sequence[Backlog]) -> None:
        self._categories = frozenset(Category(name) for name in settings.audit_events)
        self._excluded_principals = settings.audit_excluded_principal_names()
        self._excluded_topics = frozenset(settings.audit_excluded_topics)
        self._may_refuse = settings.audit_failure_policy == REJECT and self.wants(Category.MANAGEMENT)
        self._writer = OcsfWriter(node)
        self._tallies = Tallies()
        self._backlogs = backlogs
        self._latest_ms = 0
        self.budget = DecisionBudget(KEPT_MAX_BYTES)
        """The memory of the allowed operations that all sessions count."""

    def wants(self, *categories: Category) -> bool:
        """Returns True if the audit records at least one of these categories."""
        return not self._categories.isdisjoint(categories)

    def is_about(self, principal: str) -> bool:
        """Returns True if the audit records the actions of the principal."""
        return principal not in self._excluded_principals

    def is_excluded(self, topic: str) -> bool:
        """Returns True if the audit does not record reads and writes of the topic."""
        return topic in self._excluded_topics

    def record(self, event: AuditEvent, now_ms: int) -> Tally:
        """Records an event of a wanted category. Returns the tally of equal events, in which the caller may count
        further ones."""
        tally, tallied = self._tallies.count(event.within_bounds(), self._forward(now_ms))
        self._write(tallied)
        return tally

    def end_minutes(self, now_ms: int) -> None:
        """Writes the lines of all minutes that have ended."""
        self._write(self._tallies.end_minutes(self._forward(now_ms)))

    def close(self, now_ms: int) -> None:
        """Writes the lines of all events that are still being counted."""
        self._write(self._tallies.close(self._forward(now_ms)))

    @property
    def is_overrun(self) -> bool:
        """True if events were dropped and an output has not caught up yet."""
        return any(backlog.is_overrun for backlog in self._backlogs)

    @property
    def refuses_changes(self) -> bool:
        """True while no change may be made, because its event could be dropped (`audit.failure.policy=reject`)."""
        return self._may_refuse and self.is_overrun

    def _write(self, tallied: Iterable[TalliedEvent]) -> None:
        for event in tallied:
            line = self._writer.line(event)
            for backlog in self._backlogs:
                backlog.add(line, event.times)

    def _forward(self, now_ms: int) -> int:
        """Returns a time that never decreases, even if the wall clock is set back, so that minutes always end."""
        self._latest_ms = max(self._latest_ms, now_ms)
        return self._latest_ms
