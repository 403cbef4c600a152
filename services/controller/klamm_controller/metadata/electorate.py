"""Which brokers may lead a partition, and by which of the cluster's settings: what every election asks.

`min.insync.replicas` and `unclean.leader.election.enable` are the topic's, else the brokers'. Brokers' own files may
differ. Then the controller goes by what is safe under any leader: the smallest minimum (a replica that left an in-sync
set of at least that many is not known to have what was committed since), and unclean elections only if all allow them.
"""

from __future__ import annotations

from klamm_controller.metadata.config_layers import broker_layers
from klamm_server.config.config_defs import parse, resolve_topic_config
from klamm_server.metadata.entities import BrokerImage
from klamm_server.metadata.image import MetadataImage

_MIN_ISR = "min.insync.replicas"
_UNCLEAN = "unclean.leader.election.enable"


MIN_ISR = "min.insync.replicas"
UNCLEAN = "unclean.leader.election.enable"


def is_active(broker: BrokerImage | None) -> bool:
    """Whether the broker may lead and join in-sync sets."""
    return broker is not None and not broker.fenced and not broker.in_controlled_shutdown


def active_brokers(image: MetadataImage) -> frozenset[int]:
    """The ids of the brokers that may lead."""
    return frozenset(broker_id for broker_id, broker in image.brokers.items() if is_active(broker))


class Electorate:
    """What elections go by in one decision: the image, and a broker about whom the decision has other news.

    `lost` is not active any more, `found` is active from now on, whatever the image says."""

    def __init__(self, image: MetadataImage, *, lost: int | None = None, found: int | None = None) -> None:
        active = active_brokers(image)
        self.active = (active - {lost}) | ({found} if found is not None else frozenset())
        self._image = image
        self._defaults: dict[str, list[str]] = {}

    def min_isr(self, topic: str, replica_count: int) -> int:
        """How many must be in sync before anything more is committed; never more than there are replicas."""
        return min(replica_count, *map(int, self._in_force(MIN_ISR, topic)))

    def unclean(self, topic: str) -> bool:
        """Whether a replica that is not known to have everything may lead when no other can."""
        return all(parse(UNCLEAN, text) for text in self._in_force(UNCLEAN, topic))

    def _in_force(self, name: str, topic: str) -> list[str]:
        """The topic's own value, or what each broker would say."""
        own = self._image.topic_configs(topic)
        if name in own:
            return [own[name]]
        if name not in self._defaults:
            layers = [broker_layers(self._image, broker_id) for broker_id in self._image.brokers] or [[]]
            self._defaults[name] = list({resolve_topic_config(name, {}, each).value for each in layers})
        return self._defaults[name]
