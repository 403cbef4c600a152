"""The interface between the controller's state machine and its log.

An entry is a `MetadataBatch`: the records of one operation under consecutive indexes, with the term of the leader that
appended it. An entry commits as a whole, and entries commit in order. Indexes here count records. They do not count
Raft's entries, because some of these have no records. If two controllers have the same record at an index, they have
the same records before it.

The owner of a log must follow three rules. It appends only while `is_leader` is True. It assumes that an entry is lost
unless `on_committed` reports it. It saves a snapshot when `on_snapshot_due` is called.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from klamm.wire.v1.metadata_pb2 import MetadataBatch, MetadataRecord
from klamm_server.metadata.image import MetadataImage


class LogListener(Protocol):
    """The owner of a metadata log. The log calls these methods on the event loop. During a call of the owner to the
    log, it calls them only in `start`."""

    def on_committed(self, entries: Sequence[MetadataBatch]) -> None:
        """Reports committed entries, in order, each once per start or restore. `entries` is never empty."""

    def on_restored(self, image: MetadataImage) -> None:
        """Replaces the committed image with the image of a snapshot that a leader sent."""

    def on_new_term(self) -> None:
        """Reports that entries of a later term have begun to commit. Entries that were appended before and have not
        committed by now are lost."""

    def on_snapshot_due(self) -> None:
        """Asks the state machine to call `save_snapshot`, because enough was committed since the last snapshot."""

    def on_claimed(self) -> None:
        """Reports that this node leads and that all committed entries have been reported. The owner may append from now
        on."""

    def on_resigned(self) -> None:
        """Reports that this node may no longer append. Its uncommitted entries may still commit, or be lost."""


class MetadataLog(Protocol):
    """A replicated log of metadata."""

    @property
    def is_leader(self) -> bool:
        """True while this node may append."""

    @property
    def term(self) -> int:
        """The newest Raft term that this node knows."""

    def start(self, listener: LogListener) -> None:
        """Starts taking part in the quorum, and reports to `listener` from now on."""

    def append(self, records: Sequence[MetadataRecord]) -> MetadataBatch:
        """Appends the records as one entry at the end of the log, and starts to replicate it. Returns the entry.

        Raises a retriable BrokerError (NOT_CONTROLLER, THROTTLING_QUOTA_EXCEEDED) if the records cannot be appended."""

    async def confirm_leadership(self) -> None:
        """Waits until every entry that had committed before the call was reported, and a majority has confirmed this
        node as leader.

        Raises NotControllerError."""

    def save_snapshot(self, image: MetadataImage) -> None:
        """Starts to write `image` as a snapshot, and to drop the entries that the snapshot replaces. The owner must
        call it only in `on_snapshot_due`, with the image of exactly the reported entries."""

    async def stop(self) -> None:
        """Hands the leadership over if another voter can lead, makes the appended entries durable, and closes the
        store."""
