"""The cluster as Kafka clients see it: brokers and nothing else.

A broker without a Kafka listener is not shown. The controller is said to be the broker that answers: it passes on what
is the controllers' business. A coordinator is some live broker, the same for a key as long as the live ones are the
same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from klamm.model import coordinator_shard
from klamm_server.metadata.image import BrokerImage, MetadataImage

NOT_ASKED_FOR: Final = -(2**31)
"""Authorized operations, where nobody asked or nobody is authorized in any way."""


class ClusterView:
    """By the newest metadata."""

    def __init__(self, image: Callable[[], MetadataImage], broker_id: int) -> None:
        self._image = image
        self.broker_id = broker_id

    @property
    def image(self) -> MetadataImage:
        return self._image()

    def brokers(self) -> list[BrokerImage]:
        """Live ones with a Kafka listener, by id."""
        return [broker for broker in self._image().live_brokers() if broker.kafka_port]

    @property
    def controller_id(self) -> int:
        """Whom clients take for the controller: this broker, or the first that is live."""
        ids = [broker.broker_id for broker in self.brokers()]
        return self.broker_id if self.broker_id in ids else next(iter(ids), -1)

    def coordinator_of(self, key: str) -> BrokerImage | None:
        """Whom clients take for the coordinator of a group or transactional id; None while no broker is live."""
        brokers = self.brokers()
        return brokers[coordinator_shard(key, len(brokers))] if brokers else None
