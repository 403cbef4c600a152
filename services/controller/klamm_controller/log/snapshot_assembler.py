"""Reads a leader's snapshot chunk by chunk, because reading a big snapshot at once would block the event loop for
seconds."""

from __future__ import annotations

from klamm_controller.log.snapshot import SnapshotReader
from klamm_controller.raft.effects import WriteSnapshotChunk
from klamm_controller.raft.messages import SnapshotId
from klamm_server.metadata.image import MetadataImage


class SnapshotAssembler:
    """Assembles the snapshot that arrives, and keeps a complete snapshot until it is on disk. The next snapshot may
    begin to arrive before that."""

    def __init__(self) -> None:
        self._coming: tuple[SnapshotId, SnapshotReader] | None = None
        self._whole: tuple[SnapshotId, SnapshotReader] | None = None

    def feed(self, chunk: WriteSnapshotChunk) -> None:
        """Reads the next chunk. Chunks must come in order. A chunk at position 0 begins another snapshot."""
        if chunk.position == 0:
            self._coming = (chunk.snapshot, SnapshotReader())
        assert self._coming is not None, chunk.position
        snapshot, reader = self._coming
        assert snapshot == chunk.snapshot, (snapshot, chunk.snapshot)
        reader.feed(chunk.data)
        if chunk.is_last:
            self._whole, self._coming = self._coming, None

    def take(self, snapshot: SnapshotId) -> MetadataImage:
        """Removes the complete snapshot and returns its image. Raises CorruptLogError."""
        assert self._whole is not None, snapshot
        received, reader = self._whole
        assert received == snapshot, (received, snapshot)
        self._whole = None
        return reader.finish()
