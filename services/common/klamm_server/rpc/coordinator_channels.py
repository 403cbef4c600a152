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
    """`owner_of` gives a stub, or None while nobody owns the shard. `own` is the listener that this server uses of
    others."""

    def __init__(self, transport: Transport, image: Callable[[], MetadataImage], own: Listener) -> None:
        self._image = image
        self._own = own
        # A group's offsets have no bound of their own.
        self._channels = Channels(transport, COORDINATOR, SERVERS)

    def owner_of(self, topic: str, shard: int) -> CoordinatorStub | None:
        """The coordinator that owns the shard of that internal topic."""
        image = self._image()
        writer = image.shards.get((topic, shard))
        owner = None if writer is None else image.coordinators.get(writer.coordinator_id)
        return None if owner is None or owner.fenced else self.to(owner)

    def to(self, coordinator: CoordinatorImage) -> CoordinatorStub:
        """Returns the stub that calls that coordinator."""
        return self._channels.stub(self._address(coordinator))

    def on_image(self, new: MetadataImage) -> None:
        """Waits for no answer of a coordinator that is fenced or gone."""
        self._channels.end_calls_except({self._address(one) for one in new.live_coordinators()})

    async def close(self) -> None:
        """Ends the calls under way."""
        await self._channels.close()

    def _address(self, coordinator: CoordinatorImage) -> str:
        return "{}:{}".format(*server_address(coordinator, self._own))
