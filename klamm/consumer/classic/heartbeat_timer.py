"""When a member of a classic group has to be heard, and when it last heard its coordinator.

Follows `org.apache.kafka.clients.consumer.internals.Heartbeat`.
"""

from __future__ import annotations


class HeartbeatTimer:
    """The timers of one member; they mean something while it is in a generation."""

    def __init__(self, *, interval_ms: int, session_timeout_ms: int) -> None:
        self._interval_ms = interval_ms
        self._session_timeout_ms = session_timeout_ms
        self._due_at_ms = 0
        """When the next one is."""
        self._heard_at_ms = 0
        """When the coordinator last answered well."""
        self._is_under_way = False

    def begin(self, now_ms: int) -> None:
        """The coordinator has answered a join."""
        self.reset()
        self._heard_at_ms = now_ms
        self._due_at_ms = now_ms + self._interval_ms

    def reset(self) -> None:
        """No answer is waited for."""
        self._is_under_way = False

    def next_deadline_ms(self) -> int:
        """When the session expires, or a heartbeat is due."""
        session_end_ms = self._heard_at_ms + self._session_timeout_ms
        return session_end_ms if self._is_under_way else min(session_end_ms, self._due_at_ms)

    def take_expiry(self, now_ms: int) -> bool:
        """Whether the session has expired: the coordinator may long have expelled us, or be another by now. True once,
        then it has a session's time again."""
        expired = now_ms >= self._heard_at_ms + self._session_timeout_ms
        if expired:
            self._heard_at_ms = now_ms
            self._is_under_way = False
        return expired

    def take_due(self, now_ms: int) -> bool:
        """Whether to send one now; it is under way then."""
        due = now_ms >= self._due_at_ms and not self._is_under_way
        if due:
            self._due_at_ms = now_ms + self._interval_ms
            self._is_under_way = True
        return due

    def heard(self, now_ms: int) -> None:
        """The coordinator answered well."""
        self._heard_at_ms = now_ms

    def retry_at(self, due_at_ms: int) -> None:
        """The coordinator did not; the next one is due then."""
        self._due_at_ms = due_at_ms
