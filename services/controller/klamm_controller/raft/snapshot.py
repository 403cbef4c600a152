"""Snapshots on the move: in chunks, one under way at a time, each side knowing the position it is at (KIP-630).

The receiver leads: whatever arrives, it answers with the first byte it still needs, and the sender continues there.
So lost, repeated and reordered chunks cost a round trip, and a transfer resumes where it was after a broken
connection. A receiver that restarts, or gets another leader, begins again at 0: two replicas' snapshots of one end
hold the same state, but not necessarily the same bytes.
"""

from __future__ import annotations

from klamm_controller.raft.messages import SnapshotChunkRequest, SnapshotId


class SnapshotSending:
    """The leader's side. Invariant: at most one chunk is being loaded or unanswered."""

    def __init__(self, snapshot: SnapshotId, now_ms: int) -> None:
        self.snapshot = snapshot
        self.position = 0
        """The first byte that the receiver is not known to have."""
        self.waiting_since_ms = now_ms
        """When the chunk at `position` was asked for."""

    def on_needed(self, position: int, now_ms: int) -> bool:
        """The receiver needs `position`; returns whether that chunk must be loaded now."""
        if position == self.position:
            return False
        self.position = position
        self.waiting_since_ms = now_ms
        return True

    def on_timeout(self, now_ms: int, timeout_ms: int) -> bool:
        """Whether the chunk, or its answer, must be taken for lost and loaded again."""
        if now_ms - self.waiting_since_ms < timeout_ms:
            return False
        self.waiting_since_ms = now_ms
        return True


class SnapshotReceiving:
    """A follower's side, for as long as it follows one leader in one term."""

    def __init__(self, snapshot: SnapshotId) -> None:
        self.snapshot = snapshot
        self.position = 0
        """The first byte that is not there yet."""

    def accept(self, chunk: SnapshotChunkRequest) -> bool:
        """Whether the chunk is the one that is needed; counts it in if so."""
        assert chunk.snapshot == self.snapshot, (chunk.snapshot, self.snapshot)
        if chunk.position != self.position:
            return False
        self.position += len(chunk.data)
        return True
