"""The brokers of the newest metadata: their epochs, racks and states, for partitions and readers."""

from __future__ import annotations

from collections.abc import Mapping

from klamm_server.metadata.entities import BrokerImage


class BrokerDirectory:
    """The brokers of the newest metadata, including brokers that are fenced or shutting down."""

    def __init__(self) -> None:
        self.images: Mapping[int, BrokerImage] = {}

    def broker_epoch(self, broker_id: int) -> int:
        """Returns the epoch of the broker's registration, or -1 if it is not registered."""
        broker = self.images.get(broker_id)
        return -1 if broker is None else broker.broker_epoch

    def is_eligible(self, broker_id: int) -> bool:
        """Returns True if the broker may join in-sync sets (KIP-841)."""
        broker = self.images.get(broker_id)
        return broker is not None and not broker.fenced and not broker.in_controlled_shutdown

    def live_rack(self, broker_id: int) -> str | None:
        """Returns the broker's `broker.rack` ("" without one), or None if the broker is fenced or not registered."""
        broker = self.images.get(broker_id)
        return None if broker is None or broker.fenced else broker.rack

    def live(self) -> frozenset[int]:
        """Returns the ids of the brokers that are not fenced."""
        return frozenset(broker_id for broker_id, broker in self.images.items() if not broker.fenced)
