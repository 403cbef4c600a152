"""Who ends transactions in a partition, as the newest metadata image says."""

from __future__ import annotations

from collections.abc import Callable

from klamm.model import GROUP_METADATA_TOPIC, TopicPartition
from klamm.wire.service import Stub
from klamm_coordinator.io.broker_channels import BrokerChannels
from klamm_server.coordinator_channels import CoordinatorChannels
from klamm_server.metadata.image import MetadataImage


class PartitionHolders:
    """A shard of groups is its coordinator's, any other partition its leader's."""

    def __init__(
        self, brokers: BrokerChannels, coordinators: CoordinatorChannels, image: Callable[[], MetadataImage]
    ) -> None:
        self._brokers = brokers
        self._coordinators = coordinators
        self._image = image

    def exists(self, partition: TopicPartition) -> bool:
        """Whether there is such a partition, wherever it is."""
        return self._image().partition(*partition) is not None

    def holder_of(self, partition: TopicPartition) -> Stub | None:
        """The one to send WriteTxnMarkers to; None while there is none."""
        channels = self._coordinators.owner_of if partition.topic == GROUP_METADATA_TOPIC else self._brokers.leader_of
        return channels(*partition)
