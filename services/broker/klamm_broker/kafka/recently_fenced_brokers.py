"""Brokers that were fenced a moment ago and that Metadata still lists.

If librdkafka drops the coordinator of a group because Metadata does not list this broker, it forgets to search for the
new coordinator. `send_offsets_to_transaction` may then never return. Kafka lists a dead broker until its session ends,
and its clients have found another coordinator by then. In Klamm, a closed connection fences a broker within half a
second. A listed fenced broker leads and coordinates nothing. A client that dials it gets a refused connection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from klamm_server.metadata.entities import BrokerImage
from klamm_server.metadata.image import MetadataImage
from klamm_server.runtime.clock import Clock


class RecentlyFencedBrokers:
    """The brokers that were fenced less than `listed_ms` ago. A broker counts as fenced from the first call that finds
    it fenced. A broker that was shut down cleanly is not listed, as in Kafka."""

    def __init__(self, image: Callable[[], MetadataImage], clock: Clock, *, listed_ms: int) -> None:
        self._image = image
        self._clock = clock
        self._listed_ms = listed_ms
        self._seen: Mapping[int, BrokerImage] = {}
        self._until_ms: dict[tuple[int, int], int] = {}
        """The key is broker and epoch, because a restarted broker has another epoch."""

    def ids(self) -> frozenset[int]:
        now_ms = self._clock.monotonic_ms()
        brokers = self._image().brokers
        if brokers is not self._seen:
            self._seen = brokers
            gone = {
                (broker.broker_id, broker.broker_epoch)
                for broker in brokers.values()
                if broker.fenced and not broker.in_controlled_shutdown
            }
            self._until_ms = {
                registration: self._until_ms.get(registration, now_ms + self._listed_ms) for registration in gone
            }
        return frozenset(broker_id for (broker_id, _), until_ms in self._until_ms.items() if now_ms < until_ms)
