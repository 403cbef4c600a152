"""One gRPC channel per broker, found by who leads a partition in the newest metadata image."""

from __future__ import annotations

from collections.abc import Callable

from klamm.wire.service import BROKER, Stub
from klamm_server.channels import Channels
from klamm_server.metadata.image import MetadataImage

CHANNEL_OPTIONS = [
    # A fetch answers with what was asked for or one batch more, whatever size the broker allowed that batch.
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # A container that comes back may have another address behind its name; the default is to look in 30 seconds.
    ("grpc.dns_min_time_between_resolutions_ms", 1_000),
]


class BrokerChannels:
    """`leader_of` gives a stub, or None while nobody leads; `on_image` with each image."""

    def __init__(self, image: Callable[[], MetadataImage]) -> None:
        self._image = image
        self._channels = Channels(BROKER, CHANNEL_OPTIONS)

    def leader_of(self, topic: str, partition: int) -> Stub | None:
        """The broker that leads the partition."""
        image = self._image()
        found = image.partition(topic, partition)
        broker = image.brokers.get(found.leader) if found is not None else None
        return None if broker is None else self._channels.stub(f"{broker.host}:{broker.port}")

    def leader_epoch_of(self, topic: str, partition: int) -> int:
        """The one of that leader; 0, the first one of all, when the partition is not known."""
        found = self._image().partition(topic, partition)
        return 0 if found is None else found.leader_epoch

    def on_image(self, new: MetadataImage) -> None:
        """Waits for no answer of a broker that is fenced or gone."""
        self._channels.end_calls_except({f"{broker.host}:{broker.port}" for broker in new.live_brokers()})

    async def close(self) -> None:
        """Ends the calls under way."""
        await self._channels.close()
