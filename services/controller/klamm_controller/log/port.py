"""What the controller's state machine asks of its log, whoever replicates it.

An entry is a `MetadataBatch`: the records of one operation under consecutive indexes, with the term of the leader that
appended it. Entries commit whole and in order.

The caller's part: append only while `is_leader`; take an entry for lost unless it comes back through `on_committed`;
offer an image for a snapshot whenever `snapshot_due`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from klamm.wire.v1.metadata_pb2 import MetadataBatch, MetadataRecord
from klamm_server.metadata.image import MetadataImage

OnCommitted = Callable[[Sequence[MetadataBatch]], None]
"""Called on the event loop with entries that are durable, in order, each once."""


class MetadataLog(Protocol):
    """A replicated log of metadata."""

    @property
    def is_leader(self) -> bool:
        """Whether this node may append."""

    @property
    def leader_id(self) -> int:
        """The node.id of the leader, or -1 while there is none."""

    @property
    def term(self) -> int:
        """The current term."""

    def start(self, on_committed: OnCommitted) -> None:
        """Begins to take part; every entry committed from now on is told to `on_committed`."""

    def append(self, records: Sequence[MetadataRecord]) -> MetadataBatch:
        """Gives the records the next indexes, and begins to make them durable; returns the entry."""

    @property
    def snapshot_due(self) -> bool:
        """Whether enough was committed since the last snapshot."""

    def save_snapshot(self, image: MetadataImage) -> None:
        """Begins to write a snapshot of a committed image and to drop the entries that it replaces."""

    async def stop(self) -> None:
        """Makes durable what was appended, and closes the storage."""
