"""The connections to coordinators. A shard's owner is found in the newest metadata image."""

from __future__ import annotations

from collections.abc import Callable

from klamm.rpc.options import SERVERS
from klamm.rpc.transport import Transport
from klamm.wire.v1.coordinator_rpc import COORDINATOR, CoordinatorStub
from klamm_server.metadata.entities import CoordinatorImage, server_address
from klamm_server.metadata.image import MetadataImage
from klamm_server.net.listeners import Listener
from klamm_server.rpc.channels import Channels


class CoordinatorChannels:
    """The connections to coordinators. `owner_of` returns a stub, or None without an owner of the shard. `own` is the
    listener of other servers that this server uses."""

    def __init__(self, transport: Transport, image: Callable[[], MetadataImage], own: Listener) -> None:
        self._image = image
        self._own = own
        # The size of a group's offsets has no limit.
        self._channels = Channels(transport, COORDINATOR, SERVERS)

    def owner_of(self, topic: str, shard: int) -> CoordinatorStub | None:
        """Returns the stub of the coordinator that owns the shard of that internal topic, or None."""
        image = self._image()
        writer = image.shards.get((topic, shard))
        owner = None if writer is None else image.coordinators.get(writer.coordinator_id)
        return None if owner is None or owner.fenced else self.to(owner)

    def to(self, coordinator: CoordinatorImage) -> CoordinatorStub:
        """Returns the stub that calls that coordinator."""
        return self._channels.stub(self._address(coordinator))

    def on_image(self, new: MetadataImage) -> None:
        """Ends the calls to coordinators that are fenced or gone, because they may never answer."""
        self._channels.end_calls_except(
            {self._address(live_coordinator) for live_coordinator in new.live_coordinators()}
        )

    async def close(self) -> None:
        """Ends the calls under way."""
        await self._channels.close()

    def _address(self, coordinator: CoordinatorImage) -> str:
        return "{}:{}".format(*server_address(coordinator, self._own))
