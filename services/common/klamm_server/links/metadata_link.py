"""Keeps a broker's or coordinator's metadata image up to date: one stream from a controller, for ever.

Invariants: the published image is always whole (a snapshot is published when it is complete, never in part),
its end index never goes back, and no record is replayed twice or left out. A stream that breaks any of this is
dropped; the next one starts at the end index of the image.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

from klamm.errors import BrokerError, KlammError
from klamm.retry import Backoff
from klamm.rpc.transport import Transport
from klamm.wire.v1.controller_pb2 import WatchMetadataRequest
from klamm.wire.v1.controller_rpc import CONTROLLER
from klamm.wire.v1.metadata_pb2 import MetadataBatch
from klamm_server.metadata.image import MetadataImage
from klamm_server.metadata.replay import ImageBuilder, replay
from klamm_server.rpc.controller_channel import ControllerChannel
from klamm_server.rpc.controllers import Controllers
from klamm_server.rpc.retries import ServerRetries
from klamm_server.runtime.clock import Clock

log = logging.getLogger(__name__)

OnImage = Callable[[MetadataImage, MetadataImage], Awaitable[None]]
"""Called with (the old image, the new image), in order, on the event loop. The next image waits until it returns. Only
then does the link use the new image, and heartbeats report it."""

RECONNECT = Backoff(initial_ms=50, max_ms=1_000)


class _StreamError(KlammError):
    """A controller's stream does not continue the image."""


class MetadataLink:
    """Follows the metadata log (`run`) and keeps the newest `image`.

    `cluster_id` may be empty for a new server. Once an image has one, only that cluster is followed."""

    def __init__(
        self,
        transport: Transport,
        controllers: Controllers,
        *,
        cluster_id: str,
        on_image: OnImage,
        clock: Clock,
        rng: random.Random,
        reconnect: Backoff = RECONNECT,
    ) -> None:
        self._channel = ControllerChannel(transport, controllers, CONTROLLER)
        self._cluster_id = cluster_id
        self._on_image = on_image
        self._clock = clock
        self._retries = ServerRetries("metadata stream", "", reconnect, rng)
        self._image = MetadataImage.empty()
        self._waiters: list[tuple[Callable[[MetadataImage], bool], asyncio.Future[MetadataImage]]] = []

    @property
    def image(self) -> MetadataImage:
        """The newest image. It is empty until the first batch has arrived."""
        return self._image

    async def wait_for(self, predicate: Callable[[MetadataImage], bool]) -> MetadataImage:
        """Waits for ever until an image satisfies `predicate`, beginning with the current one. Returns that image."""
        if predicate(self._image):
            return self._image
        future: asyncio.Future[MetadataImage] = asyncio.get_running_loop().create_future()
        waiter = (predicate, future)
        self._waiters.append(waiter)
        try:
            return await future
        finally:
            self._waiters.remove(waiter)

    async def run(self) -> None:
        """Follows the log until it is cancelled. An exception of `on_image` or of a replay ends it, and is fatal."""
        try:
            while True:
                why = await self._follow_one_stream()
                await self._retries.pause(f"controller={self._channel.address} end_index={self._image.end_index} {why}")
                self._channel.rotate()
        finally:
            await self._channel.close()

    async def _follow_one_stream(self) -> str:
        """Follows one stream. Returns why the stream has ended or was dropped."""
        request = WatchMetadataRequest(
            start_index=self._image.end_index, cluster_id=self._image.cluster_id or self._cluster_id
        )
        try:
            async with contextlib.aclosing(self._batches(request)) as batches:
                await self._replay(batches)
        except _StreamError as error:
            return str(error)
        return "the controller ended the stream"

    async def _batches(self, request: WatchMetadataRequest) -> AsyncGenerator[MetadataBatch, None]:
        """Yields the stream's batches. Only the stream's own errors end the stream. An error in processing a batch is
        fatal."""
        try:
            async for batch in self._channel.stub().watch_metadata(request):
                yield batch
        except BrokerError as error:
            raise _StreamError(str(error)) from error

    async def _replay(self, batches: AsyncIterator[MetadataBatch]) -> None:
        snapshot: ImageBuilder | None = None
        snapshot_start_ms = 0
        async for batch in batches:
            if batch.snapshot_begin:
                snapshot = ImageBuilder(MetadataImage.empty())
                snapshot_start_ms = self._clock.monotonic_ms()
            if snapshot is None:
                self._check_continues(batch)
                image = replay(self._image, batch.records, batch.end_index)
                # Replaying and publishing a large change take long, so other work may run in between.
                await asyncio.sleep(0)
                await self._publish(image)
                continue
            snapshot.apply(batch.records)
            if batch.snapshot_end:
                await self._publish(self._check_snapshot(snapshot.finish(batch.end_index)))
                took_ms = self._clock.monotonic_ms() - snapshot_start_ms
                log.info("metadata snapshot loaded end_index=%d took_ms=%d", batch.end_index, took_ms)
                snapshot = None

    def _check_continues(self, batch: MetadataBatch) -> None:
        if batch.snapshot_end:
            raise _StreamError("a snapshot ended that had not started")
        if batch.base_index != self._image.end_index:
            raise _StreamError(f"a batch starts at index {batch.base_index}, expected {self._image.end_index}")
        if batch.end_index != batch.base_index + len(batch.records):
            raise _StreamError(
                f"a batch of {len(batch.records)} records has indexes {batch.base_index} to {batch.end_index}"
            )

    def _check_snapshot(self, snapshot: MetadataImage) -> MetadataImage:
        if snapshot.end_index < self._image.end_index:
            raise _StreamError(
                f"a snapshot ends at index {snapshot.end_index}, which is before the metadata already applied"
            )
        known = self._image.cluster_id or self._cluster_id
        if known and snapshot.cluster_id != known:
            raise _StreamError(f"a snapshot belongs to cluster {snapshot.cluster_id}, expected {known}")
        return snapshot

    async def _publish(self, image: MetadataImage) -> None:
        self._retries.reset()
        await self._on_image(self._image, image)
        self._image = image
        for predicate, future in self._waiters:
            if not future.done() and predicate(image):
                future.set_result(image)
