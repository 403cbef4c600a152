"""Brokers that were fenced a moment ago, which Metadata still lists.

librdkafka drops a broker that Metadata does not list and forgets to ask again who coordinates a group, if that was this
broker: `send_offsets_to_transaction` may then never return. Kafka lists a dead broker until its session ends, and its
clients have moved on by then. Here a broken connection fences a broker within half a second. None of these brokers
leads or coordinates anything; a client that tries one anyway loses a connection that is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from klamm_server.metadata.entities import BrokerImage
from klamm_server.metadata.image import MetadataImage
from klamm_server.runtime.clock import Clock


class JustFenced:
    """The brokers that were fenced less than `listed_ms` ago. A broker counts as fenced from the first question on that
    finds it so. One that shut down in order is not among them, as in Kafka."""

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
                (one.broker_id, one.broker_epoch)
                for one in brokers.values()
                if one.fenced and not one.in_controlled_shutdown
            }
            self._until_ms = {each: self._until_ms.get(each, now_ms + self._listed_ms) for each in gone}
        return frozenset(broker_id for (broker_id, _), until_ms in self._until_ms.items() if now_ms < until_ms)
