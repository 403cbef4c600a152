"""The interface between the controller's state machine and its log.

An entry is a `MetadataBatch`: the records of one operation under consecutive indexes, with the term of the leader that
appended it. Entries commit whole and in order. Indexes here count records, not Raft's entries, of which some carry no
records: two controllers that have the same record at an index have the same records before it.

The owner's part: append only while `is_leader`; take an entry for lost unless it comes back through `on_committed`;
save a snapshot when `on_snapshot_due` asks for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from klamm.wire.v1.metadata_pb2 import MetadataBatch, MetadataRecord
from klamm_server.metadata.image import MetadataImage


class LogListener(Protocol):
    """The owner of a log; called on the event loop, never from within a call of its own but `start`."""

    def on_committed(self, entries: Sequence[MetadataBatch]) -> None:
        """These are certain: in order, each once per start or restore. Never empty."""

    def on_restored(self, image: MetadataImage) -> None:
        """Replaces the committed image by the one of a leader's snapshot."""

    def on_new_term(self) -> None:
        """Notes that a later term has begun to commit. Entries that were appended before it and have not committed by
        now are lost."""

    def on_snapshot_due(self) -> None:
        """Asks the state machine to call `save_snapshot`, because enough was committed since the last snapshot."""

    def on_claimed(self) -> None:
        """This node leads, and everything that was ever committed has been told: it decides from now on."""

    def on_resigned(self) -> None:
        """This node decides no more. What it appended may commit yet, or be lost."""


class MetadataLog(Protocol):
    """A replicated log of metadata."""

    @property
    def is_leader(self) -> bool:
        """Whether this node may append."""

    @property
    def term(self) -> int:
        """The current term."""

    def start(self, listener: LogListener) -> None:
        """Begins to take part."""

    def append(self, records: Sequence[MetadataRecord]) -> MetadataBatch:
        """Gives the records the next indexes, and begins to replicate them; returns the entry.

        Raises a retriable BrokerError when they cannot be taken on (NOT_CONTROLLER, THROTTLING_QUOTA_EXCEEDED)."""

    async def confirm_leadership(self) -> None:
        """Returns when everything that was committed before the call has been told, and this node still led after it.

        Raises NotControllerError."""

    def save_snapshot(self, image: MetadataImage) -> None:
        """Begins to write a snapshot, and to drop the entries that it replaces. Only from `on_snapshot_due`: the image
        must be of exactly what has been told."""

    async def stop(self) -> None:
        """Hands the leadership over, if there is somebody to take it; makes durable what was appended; closes the
        storage."""
