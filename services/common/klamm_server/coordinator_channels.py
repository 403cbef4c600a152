"""One gRPC channel per coordinator, found by who owns a shard in the newest metadata image."""

from __future__ import annotations

from collections.abc import Callable

from klamm.wire.service import COORDINATOR, Stub
from klamm_server.channels import Channels
from klamm_server.metadata.image import CoordinatorImage, MetadataImage

_OPTIONS = [
    # A group's offsets have no bound of their own.
    ("grpc.max_receive_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # A container that comes back may have another address behind its name; the default is to look in 30 seconds.
    ("grpc.dns_min_time_between_resolutions_ms", 1_000),
    # A coordinator that hangs sends no FIN; servers take a ping every 5 seconds.
    ("grpc.keepalive_time_ms", 6_000),
    ("grpc.keepalive_timeout_ms", 2_000),
]


class CoordinatorChannels:
    """`owner_of` gives a stub, or None while nobody owns the shard."""

    def __init__(self, image: Callable[[], MetadataImage]) -> None:
        self._image = image
        self._channels = Channels(COORDINATOR, _OPTIONS)

    def owner_of(self, topic: str, shard: int) -> Stub | None:
        """The coordinator that owns the shard of that internal topic."""
        image = self._image()
        writer = image.shards.get((topic, shard))
        owner = None if writer is None else image.coordinators.get(writer.coordinator_id)
        return None if owner is None or owner.fenced else self.to(owner)

    def to(self, coordinator: CoordinatorImage) -> Stub:
        """That coordinator."""
        return self._channels.stub(f"{coordinator.host}:{coordinator.port}")

    def on_image(self, new: MetadataImage) -> None:
        """Waits for no answer of a coordinator that is fenced or gone."""
        self._channels.end_calls_except({f"{one.host}:{one.port}" for one in new.live_coordinators()})

    async def close(self) -> None:
        """Ends the calls under way."""
        await self._channels.close()
