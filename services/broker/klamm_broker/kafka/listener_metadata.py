"""The cluster as Kafka clients see it: only brokers.

A broker is shown with its address on the listener that the client uses. A broker without this listener is not shown.
The broker that answers says that it is the controller, and forwards the controllers' requests. A key's coordinator is a
live broker (`coordinators.py` has the guarantees).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from klamm.model import coordinator_shard
from klamm_server.metadata.entities import BrokerImage
from klamm_server.metadata.image import MetadataImage
from klamm_server.net.listeners import Listener, SecurityProtocol, find


class ListenerBroker(NamedTuple):
    """A broker, with the address that the client dials."""

    broker_id: int
    host: str
    port: int
    rack: str
    fenced: bool


class ListenerMetadata:
    """The cluster in the newest metadata, as clients of one listener see it."""

    def __init__(
        self,
        image: Callable[[], MetadataImage],
        broker_id: int,
        listener: str,
        recently_fenced: Callable[[], frozenset[int]] = frozenset,
    ) -> None:
        self._image = image
        self.broker_id = broker_id
        self._listener = listener
        self._recently_fenced = recently_fenced

    @property
    def image(self) -> MetadataImage:
        return self._image()

    def brokers(self) -> list[ListenerBroker]:
        """Returns the live brokers with this listener, sorted by id."""
        return self._listed(self._image().live_brokers())

    def listed(self) -> list[ListenerBroker]:
        """Returns the brokers that Metadata lists, sorted by id: live brokers, and those that were fenced a moment
        ago."""
        recently_fenced = self._recently_fenced()
        return [broker for broker in self.registered() if not broker.fenced or broker.broker_id in recently_fenced]

    def registered(self) -> list[ListenerBroker]:
        """Returns all registered brokers with this listener, including fenced ones, sorted by id."""
        brokers = self._image().brokers
        return self._listed(brokers[broker_id] for broker_id in sorted(brokers))

    def unreachable(self) -> frozenset[int]:
        """Returns the ids of live brokers without this listener."""
        return frozenset(
            live_broker.broker_id for live_broker in self._image().live_brokers() if self._dialled(live_broker) is None
        )

    def _listed(self, brokers: Iterable[BrokerImage]) -> list[ListenerBroker]:
        return [
            ListenerBroker(broker.broker_id, *dialled.address, broker.rack, broker.fenced)
            for broker in brokers
            if (dialled := self._dialled(broker)) is not None
        ]

    def _dialled(self, broker: BrokerImage) -> Listener | None:
        return find(broker.listeners, self._listener, SecurityProtocol.KAFKA)

    @property
    def controller_id(self) -> int:
        """The broker that clients treat as the controller: this broker, or the first live one. -1 if there is none."""
        ids = [broker.broker_id for broker in self.brokers()]
        return self.broker_id if self.broker_id in ids else next(iter(ids), -1)

    def coordinator_of(self, key: str) -> ListenerBroker | None:
        """Returns the broker that clients treat as the coordinator of a group or transactional id, or None without a
        live broker."""
        return _coordinator(self.brokers(), key)

    def coordinated_here(self, keys: Iterable[str]) -> set[str]:
        """Returns the keys whose coordinator is this broker for clients."""
        brokers = self.brokers()
        found = ((key, _coordinator(brokers, key)) for key in keys)
        return {key for key, broker in found if broker is not None and broker.broker_id == self.broker_id}


def _coordinator(brokers: Sequence[ListenerBroker], key: str) -> ListenerBroker | None:
    return brokers[coordinator_shard(key, len(brokers))] if brokers else None
