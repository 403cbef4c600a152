"""Saves a snapshot that this replica makes, part by part, so that writes of the log can go in between."""

from __future__ import annotations

from collections.abc import Iterator

from klamm_controller.log.raft_store import RaftStore
from klamm_controller.raft.membership import VoterSet
from klamm_controller.raft.messages import SnapshotId


class SnapshotSaving:
    """The saving of one snapshot, from its first part until the store names it. No part is empty."""

    def __init__(self, store: RaftStore, snapshot: SnapshotId, voters: VoterSet, parts: Iterator[bytes]) -> None:
        self.snapshot = snapshot
        self._store = store
        self._voters = voters
        self._parts = parts
        self._part: bytes | None = None
        self._position = 0

    def advance(self) -> bool:
        """Writes the next part. Returns True once the snapshot is complete and durable.

        Raises the same errors as the store. After an error, the next call writes the same part again."""
        if self._part is None:
            self._part = next(self._parts, b"")
        if not self._part:
            self._store.name_snapshot(self.snapshot, self._voters, self._position)
            return True
        self._store.write_snapshot_part(self.snapshot, self._position, self._part)
        self._position += len(self._part)
        self._part = None
        return False
