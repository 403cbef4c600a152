"""The leader's state of one follower under one leader epoch. Kafka's `Replica` and `ReplicaState`.

A follower is *caught up* at a moment if it has all records that the leader had at that moment. It need not reach the
leader's end at every fetch. If each fetch reaches the end that the leader's log had at the previous fetch, the follower
was caught up at that previous fetch. This holds however fast the leader grows. Pure; times are monotonic milliseconds.
"""

from __future__ import annotations

UNKNOWN_OFFSET = -1
UNKNOWN_EPOCH = -1
NEVER_MS = -(2**62)


class FollowerState:
    """The state of one follower. Its offsets are unknown (-1) until it fetches."""

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
        """The epoch of the follower's registration at its last fetch."""
        self.session_id = -1
        self.end_offset = UNKNOWN_OFFSET
        """The follower has all records before this offset. Unknown until it fetches under this leader epoch."""
        self.log_start_offset = UNKNOWN_OFFSET
        self.caught_up_ms = NEVER_MS
        """The last time when the follower was caught up."""
        self.last_fetch_ms = NEVER_MS
        self.leader_end_offset = UNKNOWN_OFFSET
        """The end offset of the leader's log at the follower's last fetch."""
        self.is_joining = False
        """True if the follower is out of sync but caught up, so that the high watermark waits for it. Otherwise it
        could never join the in-sync set under steady writes."""

    def on_fetch(self, *, end_offset: int, log_start_offset: int, leader_end_offset: int, now_ms: int) -> None:
        """Records a fetch from `end_offset`. The fetch proves that the follower has all records before this offset."""
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
        """Returns True if the follower is at the leader's end, or was caught up within the last
        `replica.lag.time.max.ms`."""
        return self.end_offset == leader_end_offset or now_ms - self.caught_up_ms <= lag_time_max_ms
