"""One gRPC channel per broker. A partition's leader is found in the newest metadata image."""

from __future__ import annotations

from collections.abc import Callable

from klamm.rpc.options import SERVERS
from klamm.rpc.transport import Transport
from klamm.wire.v1.broker_rpc import BROKER, BrokerStub
from klamm_server.metadata.entities import BrokerImage, server_address
from klamm_server.metadata.image import MetadataImage
from klamm_server.net.listeners import Listener
from klamm_server.rpc.channels import Channels


class BrokerChannels:
    """The connections to brokers. `leader_of` returns a stub, or None without a leader. Call `on_image` with each
    image. `own` is the listener of other servers that this server uses."""

    def __init__(self, transport: Transport, image: Callable[[], MetadataImage], own: Listener) -> None:
        self._image = image
        self._own = own
        # A fetch answer may exceed the requested size by one batch of any size that the broker allows.
        self._channels = Channels(transport, BROKER, SERVERS)

    def leader_of(self, topic: str, partition: int) -> BrokerStub | None:
        """Returns the stub of the broker that leads the partition, or None."""
        image = self._image()
        found = image.partition(topic, partition)
        broker = image.brokers.get(found.leader) if found is not None else None
        return None if broker is None else self._channels.stub(self._address(broker))

    def leader_epoch_of(self, topic: str, partition: int) -> int:
        """Returns the partition's leader epoch, or 0, the first epoch, if the partition is not known."""
        found = self._image().partition(topic, partition)
        return 0 if found is None else found.leader_epoch

    def on_image(self, new: MetadataImage) -> None:
        """Ends the calls to brokers that are fenced or gone, because they may never answer."""
        self._channels.end_calls_except({self._address(broker) for broker in new.live_brokers()})

    async def close(self) -> None:
        """Ends the calls under way."""
        await self._channels.close()

    def _address(self, broker: BrokerImage) -> str:
        return "{}:{}".format(*server_address(broker, self._own))
