"""The transfer of snapshots in chunks, with one chunk in flight at a time. Each side knows its position (KIP-630).

The receiver answers every chunk with the position of the first byte that it still needs, and the sender continues
there. So a lost, repeated or reordered chunk costs a round trip, and a transfer resumes at its position after a broken
connection. A receiver that restarts, or has a new leader, begins again at 0. Two replicas' snapshots with the same end
hold the same state, but perhaps in different bytes.
"""

from __future__ import annotations

from klamm_controller.raft.messages import SnapshotChunkRequest, SnapshotId


class SnapshotSending:
    """The leader's side of a transfer.

    Invariant: at most one chunk is being loaded or unanswered."""

    def __init__(self, snapshot: SnapshotId, now_ms: int) -> None:
        self.snapshot = snapshot
        self.position = 0
        """The position of the first byte that the receiver is not known to have."""
        self.waiting_since_ms = now_ms
        """The time when the chunk at `position` was requested."""

    def on_needed(self, position: int, now_ms: int) -> bool:
        """Moves to the position that the receiver needs. Returns True if this chunk must be loaded now."""
        if position == self.position:
            return False
        self.position = position
        self.waiting_since_ms = now_ms
        return True

    def on_timeout(self, now_ms: int, timeout_ms: int) -> bool:
        """Returns True if the chunk or its answer counts as lost, so that the chunk must be loaded again."""
        if now_ms - self.waiting_since_ms < timeout_ms:
            return False
        self.waiting_since_ms = now_ms
        return True


class SnapshotReceiving:
    """The follower's side of a transfer, while it follows one leader in one term."""

    def __init__(self, snapshot: SnapshotId) -> None:
        self.snapshot = snapshot
        self.position = 0
        """The position of the first byte that has not arrived yet."""

    def accept(self, chunk: SnapshotChunkRequest) -> bool:
        """Returns True if the chunk is the one that is needed next, and then counts it as received."""
        assert chunk.snapshot == self.snapshot, (chunk.snapshot, self.snapshot)
        if chunk.position != self.position:
            return False
        self.position += len(chunk.data)
        return True
