"""Reports unclean leader elections, which may lose acknowledged records, and log directories that a broker has lost."""

from __future__ import annotations

import base64
import logging
from collections.abc import Sequence

from klamm.wire.v1.metadata_pb2 import MetadataRecord
from klamm_controller.metadata.brokers import gone_log_dirs
from klamm_controller.metadata.leader_election import unclean_elections
from klamm_server.metadata.image import MetadataImage
from klamm_server.metrics.instruments import counter

log = logging.getLogger(__name__)

_UNCLEAN = counter(
    "klamm_unclean_leader_elections",
    "Elections of leaders that may lack acknowledged records (Kafka's UncleanLeaderElectionsPerSec).",
)


def report_unclean_elections(image: MetadataImage, records: Sequence[MetadataRecord]) -> None:
    """Counts and logs the unclean leader elections among `records`, which are about to be applied to `image`."""
    for topic, partition, leader in unclean_elections(image, records):
        _UNCLEAN.inc()
        log.warning(
            "topic=%s partition=%d leader=%d elected uncleanly, records may be lost: before the election isr=%s elr=%s"
            " last_known_elr=%s replicas=%s",
            topic.name,
            partition.partition,
            leader,
            list(partition.isr),
            list(partition.elr),
            list(partition.last_known_elr),
            list(partition.replicas),
        )


def report_gone_log_dirs(image: MetadataImage, records: Sequence[MetadataRecord]) -> None:
    """Logs a warning for each broker registration in `records` that lacks a log directory of the broker's previous
    registration."""
    for record in records:
        registration = record.register_broker
        known = image.brokers.get(registration.broker_id) if record.HasField("register_broker") else None
        gone = gone_log_dirs(registration.log_dir_ids, known) if known is not None else ()
        if gone:
            log.warning(
                "broker=%d registers without some of its log directories (directory.id %s): the replicas there may be"
                " lost, and cannot lead until they are in sync again or `klamm topics elect-leaders --unclean` elects"
                " them",
                registration.broker_id,
                ",".join(sorted(base64.urlsafe_b64encode(log_dir_id).decode().rstrip("=") for log_dir_id in gone)),
            )
