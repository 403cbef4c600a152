"""The heartbeat and session timers of a member of a classic group.

Follows `org.apache.kafka.clients.consumer.internals.Heartbeat`."""

from __future__ import annotations


class HeartbeatTimer:
    """The timers of one member. They count only while the member is in a generation."""

    def __init__(self, *, interval_ms: int, session_timeout_ms: int) -> None:
        self._interval_ms = interval_ms
        self._session_timeout_ms = session_timeout_ms
        self._due_at_ms = 0
        """The time at which the next heartbeat is due."""
        self._heard_at_ms = 0
        """The time of the coordinator's last successful answer."""
        self._is_under_way = False

    def begin(self, now_ms: int) -> None:
        """Starts the timers after the coordinator has answered a join."""
        self.reset()
        self._heard_at_ms = now_ms
        self._due_at_ms = now_ms + self._interval_ms

    def reset(self) -> None:
        """Notes that no heartbeat is under way."""
        self._is_under_way = False

    def next_deadline_ms(self) -> int:
        """Returns the time at which the session expires or a heartbeat is due, whichever is earlier."""
        session_end_ms = self._heard_at_ms + self._session_timeout_ms
        return session_end_ms if self._is_under_way else min(session_end_ms, self._due_at_ms)

    def take_expiry(self, now_ms: int) -> bool:
        """Returns whether the session has expired. The coordinator may then have removed the member, or moved to
        another server. Returns True only once, and restarts the session timeout."""
        expired = now_ms >= self._heard_at_ms + self._session_timeout_ms
        if expired:
            self._heard_at_ms = now_ms
            self._is_under_way = False
        return expired

    def take_due(self, now_ms: int) -> bool:
        """Returns whether to send a heartbeat now, and notes that it is under way."""
        due = now_ms >= self._due_at_ms and not self._is_under_way
        if due:
            self._due_at_ms = now_ms + self._interval_ms
            self._is_under_way = True
        return due

    def on_answer(self, now_ms: int) -> None:
        """Notes a successful answer of the coordinator."""
        self._heard_at_ms = now_ms

    def retry_at(self, due_at_ms: int) -> None:
        """Sets the time of the next heartbeat after a failed one."""
        self._due_at_ms = due_at_ms
