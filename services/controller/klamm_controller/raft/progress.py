"""The leader's knowledge of one replica, which decides what the leader may send next.

| state     | sends                                           | leaves to                                           |
|-----------|-------------------------------------------------|-----------------------------------------------------|
| PROBE     | one request at a time, until the logs agree     | REPLICATE: accepted; SNAPSHOT: the log begins later |
| REPLICATE | a pipeline, up to the limits in flight          | PROBE: rejected (a message was lost or reordered)   |
| SNAPSHOT  | one chunk at a time                             | REPLICATE: the replica reports an end in the log    |

Invariants: `match_end_index <= next_index`; in REPLICATE, the ends of the requests in flight lie between these two, in
order.
"""

from __future__ import annotations

from collections import deque
from enum import Enum

from klamm_controller.raft.messages import LogEntry
from klamm_controller.raft.snapshot import SnapshotSending


class ProgressState(Enum):
    """The way in which a leader sends entries to a replica."""

    PROBE = "probe"
    REPLICATE = "replicate"
    SNAPSHOT = "snapshot"


class Progress:
    """The progress of one replica, during one leader's term."""

    def __init__(self, *, next_index: int, now_ms: int, inflight_messages_max: int, inflight_bytes_max: int) -> None:
        self.state = ProgressState.PROBE
        self.match_end_index = 0
        """The replica's log is known to be durable and equal to the leader's log up to this index."""
        self.next_index = next_index
        """The index of the next entry to send."""
        self.last_contact_ms = now_ms
        """The time of the replica's last answer in this term. A new leader starts with the current time for every
        replica."""
        self.read_round = 0
        """The newest round of reads that the replica has confirmed."""
        self.sent_high_watermark = 0
        """The greatest high watermark that was sent to the replica."""
        self.snapshot: SnapshotSending | None = None
        """The transfer of a snapshot. Set only in state SNAPSHOT."""
        self._messages_max = inflight_messages_max
        self._bytes_max = inflight_bytes_max
        self._inflight: deque[tuple[int, int]] = deque()
        """(end index, bytes) of each unanswered request with entries. Empty except in state REPLICATE."""
        self._inflight_bytes = 0
        self._probe_sent = False

    @property
    def may_send(self) -> bool:
        """True if another request with entries may be sent."""
        if self.state is ProgressState.REPLICATE:
            return len(self._inflight) < self._messages_max and self._inflight_bytes < self._bytes_max
        return self.state is ProgressState.PROBE and not self._probe_sent

    def on_sent(self, entries: tuple[LogEntry, ...], high_watermark: int) -> None:
        """Counts a request that was sent from `next_index` on."""
        self.sent_high_watermark = max(self.sent_high_watermark, high_watermark)
        if self.state is ProgressState.PROBE:
            self._probe_sent = True
        elif entries:
            size_bytes = sum(entry.size_bytes for entry in entries)
            self.next_index = entries[-1].index + 1
            self._inflight.append((self.next_index, size_bytes))
            self._inflight_bytes += size_bytes

    def on_accepted(self, end_index: int) -> bool:
        """Notes that the replica's log matches up to `end_index`. Returns True if `match_end_index` has grown."""
        advanced = end_index > self.match_end_index
        self.match_end_index = max(self.match_end_index, end_index)
        self.next_index = max(self.next_index, self.match_end_index)
        while self._inflight and self._inflight[0][0] <= end_index:
            self._inflight_bytes -= self._inflight.popleft()[1]
        return advanced

    def is_stale_rejection(self, base_index: int) -> bool:
        """Returns True if a rejection is out of date, because of a later acceptance or another probe."""
        if base_index <= self.match_end_index:
            return True
        return self.state is ProgressState.PROBE and base_index != self.next_index

    def become_probe(self, next_index: int) -> None:
        """Starts to search for the end up to which the logs agree, from `next_index` down."""
        self._enter(ProgressState.PROBE)
        self.next_index = max(next_index, self.match_end_index)

    def become_replicate(self) -> None:
        """Starts the pipeline, because the logs agree up to `match_end_index`."""
        self._enter(ProgressState.REPLICATE)
        self.next_index = self.match_end_index

    def become_snapshot(self, sending: SnapshotSending) -> None:
        """Starts to send a snapshot, because the entries that the replica needs are no longer in the log."""
        self._enter(ProgressState.SNAPSHOT)
        self.snapshot = sending

    def allow_probe(self) -> None:
        """Allows another probe, because the last one may have been lost."""
        self._probe_sent = False

    def check_invariants(self) -> None:
        """Asserts the module's invariants."""
        assert self.match_end_index <= self.next_index, (self.match_end_index, self.next_index)
        assert (self.state is ProgressState.SNAPSHOT) == (self.snapshot is not None), self.state
        assert self.state is ProgressState.REPLICATE or not self._inflight, self.state
        assert len(self._inflight) <= self._messages_max, len(self._inflight)
        if self._inflight:
            first, last = self._inflight[0][0], self._inflight[-1][0]
            assert self.match_end_index < first <= last == self.next_index, (first, last, self.next_index)
        else:
            assert self._inflight_bytes == 0, self._inflight_bytes

    def _enter(self, state: ProgressState) -> None:
        self.state = state
        self.snapshot = None
        self._probe_sent = False
        self._inflight.clear()
        self._inflight_bytes = 0
