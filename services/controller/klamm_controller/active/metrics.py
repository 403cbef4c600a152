"""The controller's metrics. The names follow Kafka's KafkaController beans.

All values are computed when a scrape reads them, in the thread of the metrics endpoint, from one immutable image.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from klamm_controller.active.controller import Controller
from klamm_server.metadata.entities import NO_LEADER
from klamm_server.metadata.image import MetadataImage
from klamm_server.metrics.instruments import Reading, Readings, gauge, gauges

_LABELS: Final = ("topic", "partition")
_ACTIVE = gauge("klamm_controller_active", "1 while this node is the active controller.")
_END_INDEX = gauge("klamm_metadata_end_index", "Index after the last committed metadata record.")
_TOPICS = gauge("klamm_topics", "Topics.")
_PARTITIONS = gauge("klamm_partitions", "Partitions.")
_OFFLINE = gauge("klamm_offline_partitions", "Partitions without a leader.")
_WITHOUT_LEADER = Readings(
    "klamm_partition_without_leader",
    "1 for a partition without a leader. Only the active controller has this metric.",
    _LABELS,
)
_LEADERS_AWAY = gauge("klamm_preferred_replica_imbalance", "Partitions that their preferred leader does not lead.")
_REASSIGNED = gauge("klamm_reassigning_partitions", "Partitions that are being reassigned.")
_BROKERS = gauges("klamm_brokers", "Registered brokers.", ["state"])
_COORDINATORS = gauges("klamm_coordinators", "Registered coordinators.", ["state"])


def watch_controller(controller: Controller) -> None:
    """Makes the controller's metrics read their values from `controller`."""

    def of_image(count: Callable[[MetadataImage], int]) -> Callable[[], float]:
        return lambda: count(controller.committed)

    _ACTIVE.set_function(lambda: controller.is_active)
    _END_INDEX.set_function(of_image(lambda image: image.end_index))
    _TOPICS.set_function(of_image(lambda image: len(image.topics_by_name)))
    _PARTITIONS.set_function(of_image(lambda image: image.index.partition_count))
    _OFFLINE.set_function(of_image(lambda image: image.index.tally(NO_LEADER).led))
    _WITHOUT_LEADER.set_function(lambda: _without_leader(controller.committed) if controller.is_active else ())
    _LEADERS_AWAY.set_function(of_image(lambda image: sum(tally.away for tally in image.index.tallies.values())))
    _REASSIGNED.set_function(of_image(lambda image: len(image.index.reassigned)))
    _BROKERS.labels("live").set_function(of_image(lambda image: len(image.live_brokers())))
    _BROKERS.labels("fenced").set_function(of_image(lambda image: len(image.brokers) - len(image.live_brokers())))
    _COORDINATORS.labels("live").set_function(of_image(lambda image: len(image.live_coordinators())))
    _COORDINATORS.labels("fenced").set_function(
        of_image(lambda image: len(image.coordinators) - len(image.live_coordinators()))
    )


def _without_leader(image: MetadataImage) -> Iterator[Reading]:
    """Yields each partition without a leader. Stops at the last such partition instead of reading all topics."""
    left = image.index.tally(NO_LEADER).led
    for topic in image.topics_by_id.values() if left else ():
        for partition in topic.partitions:
            if partition.leader == NO_LEADER:
                yield (topic.name, partition.partition), 1
                left -= 1
        if not left:
            return
