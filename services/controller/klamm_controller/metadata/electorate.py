"""The brokers that may lead a partition, and the settings that elections depend on.

`min.insync.replicas`, `unclean.leader.election.enable` and `unclean.recovery.strategy` are the topic's configs, or else
the brokers'. The brokers' own files may differ. Then the controller uses the values that are safe under any leader. It
uses the smallest minimum, because a leader may commit with only that many replicas in sync. Any other replica may then
lack records. It uses the strategy that waits longest, and allows unclean elections only if all brokers do.
"""

from __future__ import annotations

import enum

from klamm_controller.metadata.config_layers import broker_layers
from klamm_server.config.config_defs import parse, resolve_topic_config
from klamm_server.metadata.entities import BrokerImage, PartitionImage
from klamm_server.metadata.image import MetadataImage

MIN_ISR = "min.insync.replicas"
UNCLEAN = "unclean.leader.election.enable"
RECOVERY_STRATEGY = "unclean.recovery.strategy"


class RecoveryStrategy(enum.Enum):
    """The reports of logs for which unclean recovery waits (KIP-966). The strategy that waits longest comes first."""

    NONE = "None"
    BALANCED = "Balanced"
    AGGRESSIVE = "Aggressive"


def is_active(broker: BrokerImage | None) -> bool:
    """Returns True if the broker may lead partitions and join in-sync sets."""
    return broker is not None and not broker.fenced and not broker.in_controlled_shutdown


def active_brokers(image: MetadataImage) -> frozenset[int]:
    """Returns the ids of the brokers that may lead."""
    return frozenset(broker_id for broker_id, broker in image.brokers.items() if is_active(broker))


class Electorate:
    """The brokers that elections of one decision consider: those of the image, and a broker whose state has just
    changed.

    Whatever the image says, the broker `lost` is not active, and the broker `found` is active."""

    def __init__(self, image: MetadataImage, *, lost: int | None = None, found: int | None = None) -> None:
        active = active_brokers(image)
        self.active = (active - {lost}) | ({found} if found is not None else frozenset())
        self._image = image
        self._defaults: dict[str, list[str]] = {}

    def min_isr(self, topic: str, replica_count: int) -> int:
        """Returns the number of replicas that must be in sync before a leader commits further records, at most
        `replica_count`."""
        return min(replica_count, *map(int, self._in_force(MIN_ISR, topic)))

    def recovery_strategy(self, topic: str) -> RecoveryStrategy:
        """Returns the strategy that tells for which reports to wait when no replica is known to have every record."""
        if all(parse(UNCLEAN, text) for text in self._in_force(UNCLEAN, topic)):
            return RecoveryStrategy.AGGRESSIVE
        in_force = {RecoveryStrategy(text) for text in self._in_force(RECOVERY_STRATEGY, topic)}
        return next(strategy for strategy in RecoveryStrategy if strategy in in_force)

    def live_replicas(self, partition: PartitionImage) -> frozenset[int]:
        """Returns the replicas whose broker is active and whose log directory is online."""
        return self.active & frozenset(partition.replicas) - frozenset(partition.offline_replicas)

    def is_registered(self, broker_id: int) -> bool:
        """Returns False if an administrator unregistered the broker, so that it is not expected back."""
        return broker_id in self._image.brokers

    def _in_force(self, name: str, topic: str) -> list[str]:
        """Returns the topic's own value, or else the values that the brokers inherit, each once."""
        own = self._image.topic_configs(topic)
        if name in own:
            return [own[name]]
        if name not in self._defaults:
            layers = [broker_layers(self._image, broker_id) for broker_id in self._image.brokers] or [[]]
            self._defaults[name] = list({resolve_topic_config(name, {}, layer).value for layer in layers})
        return self._defaults[name]
