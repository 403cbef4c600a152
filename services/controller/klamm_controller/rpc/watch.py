"""The call of the Controller service that streams the metadata log.

A watcher that continues receives the committed entries from its index on. Any other watcher first receives a snapshot
of the current image. The controller buffers nothing per watcher. It ends the stream of a watcher that falls behind the
shared tail, and the watcher then calls again.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

from klamm.errors import ErrorCode
from klamm.wire.calls import CallContext
from klamm.wire.v1.controller_pb2 import WatchMetadataRequest
from klamm.wire.v1.metadata_pb2 import MetadataBatch
from klamm_controller.active.controller import Controller
from klamm_controller.log.snapshot import snapshot_batches

log = logging.getLogger(__name__)


class WatchRpcs:
    """Answers WatchMetadata."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    async def watch_metadata(self, request: WatchMetadataRequest, context: CallContext) -> AsyncIterator[MetadataBatch]:
        """Streams a snapshot if the watcher needs one, and then all committed entries until this controller stops.
        Raises InconsistentClusterIdError for a watcher of another cluster."""
        # A controller that has just started may not have any committed metadata yet.
        if not await self._controller.wait_beyond(0):
            return
        image = self._controller.committed
        if request.cluster_id and request.cluster_id != image.cluster_id:
            raise ErrorCode.INCONSISTENT_CLUSTER_ID.exception(
                f"the server belongs to cluster {image.cluster_id}, but the request is for {request.cluster_id}"
            )
        index = request.start_index
        if index == 0 or self._controller.entries_after(index) is None:
            index = image.end_index
            for batch in snapshot_batches(image, self._controller.term):
                yield batch
        while (entries := self._controller.entries_after(index)) is not None:
            for entry in entries:
                yield entry
                index = entry.end_index
            if not await self._controller.wait_beyond(index):
                return
        log.warning(
            "closed the metadata stream of a slow client, peer=%s index=%d end_index=%d",
            context.peer(),
            index,
            self._controller.committed.end_index,
        )
