"""Finds the server that writes transaction markers to a partition, by the newest metadata image."""

from __future__ import annotations

from collections.abc import Callable

from klamm.model import GROUP_METADATA_TOPIC, TopicPartition
from klamm.wire.v1.broker_rpc import BrokerStub
from klamm.wire.v1.coordinator_rpc import CoordinatorStub
from klamm_server.metadata.image import MetadataImage
from klamm_server.rpc.broker_channels import BrokerChannels
from klamm_server.rpc.coordinator_channels import CoordinatorChannels


class MarkerDestinations:
    """Finds the server that writes a partition's markers: the coordinator of a shard of groups, or a partition's
    leader."""

    def __init__(
        self, brokers: BrokerChannels, coordinators: CoordinatorChannels, image: Callable[[], MetadataImage]
    ) -> None:
        self._brokers = brokers
        self._coordinators = coordinators
        self._image = image

    def exists(self, partition: TopicPartition) -> bool:
        """Returns True if the partition exists on any server."""
        return self._image().partition(*partition) is not None

    def destination_of(self, partition: TopicPartition) -> BrokerStub | CoordinatorStub | None:
        """Returns the server that accepts WriteTxnMarkers for the partition, or None while there is none."""
        if partition.topic == GROUP_METADATA_TOPIC:
            return self._coordinators.owner_of(*partition)
        return self._brokers.leader_of(*partition)
