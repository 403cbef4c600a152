"""What the newest metadata say of the brokers, as partitions and readers ask for it."""

from __future__ import annotations

from collections.abc import Mapping

from klamm_server.metadata.entities import BrokerImage


class BrokerDirectory:
    """What the newest metadata say of the brokers, also of those who are not to lead."""

    def __init__(self) -> None:
        self.images: Mapping[int, BrokerImage] = {}

    def broker_epoch(self, broker_id: int) -> int:
        """The epoch of its registration, or -1 without one."""
        broker = self.images.get(broker_id)
        return -1 if broker is None else broker.broker_epoch

    def is_eligible(self, broker_id: int) -> bool:
        """Whether it may join in-sync sets (KIP-841)."""
        broker = self.images.get(broker_id)
        return broker is not None and not broker.fenced and not broker.in_controlled_shutdown

    def live_rack(self, broker_id: int) -> str | None:
        """The broker's `broker.rack`, or ""; None unless it is registered and not fenced."""
        broker = self.images.get(broker_id)
        return None if broker is None or broker.fenced else broker.rack

    def live(self) -> frozenset[int]:
        """The ids of the brokers that are not fenced."""
        return frozenset(broker_id for broker_id, broker in self.images.items() if not broker.fenced)
