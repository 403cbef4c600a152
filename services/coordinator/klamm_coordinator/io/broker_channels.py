"""One gRPC channel per broker, found by who leads a partition in the newest metadata image."""

from __future__ import annotations

from collections.abc import Callable

from grpc import aio

from klamm.wire.service import BROKER, Stub
from klamm_server.metadata.image import MetadataImage

CHANNEL_OPTIONS = [
    # A fetch answers with what was asked for or one batch more, whatever size the broker allowed that batch.
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
]


class BrokerChannels:
    """`leader_of` gives a stub, or None while nobody leads."""

    def __init__(self, image: Callable[[], MetadataImage]) -> None:
        self._image = image
        self._stubs: dict[str, tuple[aio.Channel, Stub]] = {}

    def leader_of(self, topic: str, partition: int) -> Stub | None:
        """The broker that leads the partition."""
        image = self._image()
        found = image.partition(topic, partition)
        broker = image.brokers.get(found.leader) if found is not None else None
        return None if broker is None else self._stub(f"{broker.host}:{broker.port}")

    def leader_epoch_of(self, topic: str, partition: int) -> int:
        """The one of that leader; 0, the first one of all, when the partition is not known."""
        found = self._image().partition(topic, partition)
        return 0 if found is None else found.leader_epoch

    async def close(self) -> None:
        """Ends the calls under way."""
        stubs, self._stubs = self._stubs, {}
        for channel, _ in stubs.values():
            await channel.close()

    def _stub(self, address: str) -> Stub:
        if address not in self._stubs:
            channel = aio.insecure_channel(address, options=CHANNEL_OPTIONS)
            self._stubs[address] = (channel, Stub(channel, BROKER))
        return self._stubs[address][1]
