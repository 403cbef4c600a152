"""The workload "secured": the faults of "partitions" on a cluster with TLS, logins and rights, all of which change.

These properties must hold besides those of "partitions". Clients with access notice nothing when certificates end and
are replaced, or when sessions end, with both protocols. No other client gets in or learns a name (`strangers`). Every
server that answers shows a new certificate soon (`served_certificates`).
"""

from __future__ import annotations

import pathlib
import random

from tests.chaos.klammchaos import partition_workload
from tests.chaos.klammchaos.kafka_load import KafkaConsumerClient, KafkaProducerClient
from tests.chaos.klammchaos.partition_cluster import CONSUMER, PRODUCER
from tests.chaos.klammchaos.secured_cluster import SecuredCluster
from tests.chaos.klammchaos.served_certificates import CertificateWatcher
from tests.chaos.klammchaos.strangers import Strangers, strangers_of


def run(*, duration_s: float, seed: int, directory: pathlib.Path, only: str = "") -> None:
    """Runs the workload and prints its events. Only faults with `only` in their names strike. Raises AssertionError if
    a property does not hold."""
    cluster = SecuredCluster(directory)
    guests = partition_workload.Guests(
        writers=[KafkaProducerClient(cluster.kafka_client(PRODUCER), random.Random(f"{seed}-kafka"))],
        readers=[KafkaConsumerClient(cluster.kafka_client(CONSUMER))],
        watchers=[CertificateWatcher(cluster), Strangers(strangers_of(cluster))],
    )
    partition_workload.run_for(cluster, duration_s, seed, only, guests)
