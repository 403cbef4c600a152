"""The cluster as Kafka clients see it: brokers and nothing else.

A broker is shown with the address that it has under the name of the listener by which the client came in; one without
is not shown. The controller is said to be the broker that answers: it passes on what
is the controllers' business. A key's coordinator is a live broker (`coordinators.py` says what that guarantees).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from klamm.model import coordinator_shard
from klamm_server.metadata.entities import BrokerImage
from klamm_server.metadata.image import MetadataImage
from klamm_server.net.listeners import Listener, SecurityProtocol, find


class SeenBroker(NamedTuple):
    """A broker, and what the client dials."""

    broker_id: int
    host: str
    port: int
    rack: str
    fenced: bool


class SeenCluster:
    """The cluster in the newest metadata, as clients see it that came in by the listener of that name."""

    def __init__(
        self,
        image: Callable[[], MetadataImage],
        broker_id: int,
        listener: str,
        just_fenced: Callable[[], frozenset[int]] = frozenset,
    ) -> None:
        self._image = image
        self.broker_id = broker_id
        self._listener = listener
        self._just_fenced = just_fenced

    @property
    def image(self) -> MetadataImage:
        return self._image()

    def brokers(self) -> list[SeenBroker]:
        """Live ones with that listener, by id."""
        return self._seen(self._image().live_brokers())

    def listed(self) -> list[SeenBroker]:
        """What Metadata lists, by id: live ones, and those that were until a moment ago."""
        just_fenced = self._just_fenced()
        return [one for one in self.registered() if not one.fenced or one.broker_id in just_fenced]

    def registered(self) -> list[SeenBroker]:
        """Fenced ones, too."""
        brokers = self._image().brokers
        return self._seen(brokers[broker_id] for broker_id in sorted(brokers))

    def unreachable(self) -> frozenset[int]:
        """The ids of live ones without that listener."""
        return frozenset(one.broker_id for one in self._image().live_brokers() if self._dialled(one) is None)

    def _seen(self, brokers: Iterable[BrokerImage]) -> list[SeenBroker]:
        return [
            SeenBroker(one.broker_id, *dialled.address, one.rack, one.fenced)
            for one in brokers
            if (dialled := self._dialled(one)) is not None
        ]

    def _dialled(self, broker: BrokerImage) -> Listener | None:
        return find(broker.listeners, self._listener, SecurityProtocol.KAFKA)

    @property
    def controller_id(self) -> int:
        """The broker that clients take for the controller: this one, or the first that is live."""
        ids = [broker.broker_id for broker in self.brokers()]
        return self.broker_id if self.broker_id in ids else next(iter(ids), -1)

    def coordinator_of(self, key: str) -> SeenBroker | None:
        """The broker that clients take for the coordinator of a group or transactional id; None while no broker is
        live."""
        return _coordinator(self.brokers(), key)

    def coordinated_here(self, keys: Iterable[str]) -> set[str]:
        """The keys for which clients take this broker for the coordinator."""
        brokers = self.brokers()
        found = ((key, _coordinator(brokers, key)) for key in keys)
        return {key for key, broker in found if broker is not None and broker.broker_id == self.broker_id}


def _coordinator(brokers: Sequence[SeenBroker], key: str) -> SeenBroker | None:
    return brokers[coordinator_shard(key, len(brokers))] if brokers else None
