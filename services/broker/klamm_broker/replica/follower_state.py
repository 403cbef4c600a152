"""What a leader knows of one follower, under one leader epoch. Kafka's `Replica` and `ReplicaState`.

A follower is *caught up* at a moment when it has everything the leader had at that moment. It need not be so at
every fetch: one that at each fetch reaches what the leader had at the fetch before is caught up as of then, however
fast the leader grows. Pure; times are monotonic milliseconds.
"""

from __future__ import annotations

UNKNOWN_OFFSET = -1
UNKNOWN_EPOCH = -1
NEVER_MS = -(2**62)


class FollowerState:
    """Nothing is known of it until it fetches."""

    __slots__ = (
        "broker_epoch",
        "broker_id",
        "caught_up_ms",
        "end_offset",
        "is_joining",
        "last_fetch_ms",
        "leader_end_offset",
        "log_start_offset",
        "session_id",
    )

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.broker_epoch = UNKNOWN_EPOCH
        """The registration under which it fetched last."""
        self.session_id = -1
        self.end_offset = UNKNOWN_OFFSET
        """It has every record before this one; unknown until it fetches under this leader epoch."""
        self.log_start_offset = UNKNOWN_OFFSET
        self.caught_up_ms = NEVER_MS
        """When it was caught up last."""
        self.last_fetch_ms = NEVER_MS
        self.leader_end_offset = UNKNOWN_OFFSET
        """Where the leader's log ended at its last fetch."""
        self.is_joining = False
        """Out of sync, but so close that the high watermark waits for it: else under steady writes it never gets
        there."""

    def on_fetch(self, *, end_offset: int, log_start_offset: int, leader_end_offset: int, now_ms: int) -> None:
        """It asked for the records from `end_offset` on, which proves that it has all before."""
        if end_offset >= leader_end_offset:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif end_offset >= self.leader_end_offset > UNKNOWN_OFFSET:
            self.caught_up_ms = max(self.caught_up_ms, self.last_fetch_ms)
        self.end_offset = end_offset
        self.log_start_offset = log_start_offset
        self.leader_end_offset = leader_end_offset
        self.last_fetch_ms = now_ms

    def note_caught_up(self, fetch_ms: int) -> None:
        """Notes the follower's last fetch, at `fetch_ms`, that did not mention this partition because nothing had
        changed."""
        if self.end_offset >= self.leader_end_offset > UNKNOWN_OFFSET:
            self.caught_up_ms = max(self.caught_up_ms, fetch_ms)
            self.last_fetch_ms = max(self.last_fetch_ms, fetch_ms)

    def is_caught_up(self, leader_end_offset: int, *, now_ms: int, lag_time_max_ms: int) -> bool:
        """Whether it is at the leader's end, or was not longer ago than `replica.lag.time.max.ms`."""
        return self.end_offset == leader_end_offset or now_ms - self.caught_up_ms <= lag_time_max_ms
