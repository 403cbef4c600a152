"""Tells operators of elections by which acknowledged records may be lost."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from prometheus_client import Counter

from klamm.wire.v1.metadata_pb2 import MetadataRecord
from klamm_controller.metadata.leader_election import unclean_elections
from klamm_server.metadata.image import MetadataImage
from klamm_server.metrics import REGISTRY

log = logging.getLogger(__name__)

_UNCLEAN = Counter(
    "klamm_unclean_leader_elections",
    "Elections of leaders that may lack acknowledged records (Kafka's UncleanLeaderElectionsPerSec).",
    registry=REGISTRY,
)


def report_unclean_elections(image: MetadataImage, records: Sequence[MetadataRecord]) -> None:
    """Counts and logs those that `records` bring about."""
    for topic, partition, leader in unclean_elections(image, records):
        _UNCLEAN.inc()
        log.warning(
            "topic=%s partition=%d leader=%d elected uncleanly, %s: isr=%s elr=%s replicas=%s",
            topic.name,
            partition.partition,
            leader,
            "as the last known leader" if leader in partition.last_known_elr else "records may be lost",
            list(partition.isr),
            list(partition.elr),
            list(partition.replicas),
        )
