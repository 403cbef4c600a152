"""The workload "secured": the faults of "partitions" on a cluster with TLS, logins and rights, all of which change.

What must hold beside what holds there: clients that are let in notice nothing of certificates that end and are
replaced, or of sessions that end, at both doors; nobody else gets in or learns a name (`strangers`); every server that
answers shows a new certificate soon (`served_certificates`).
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
    """Prints what happens; `only` is in the names of the faults that strike.

    Raises AssertionError when something happens that must not."""
    cluster = SecuredCluster(directory)
    guests = partition_workload.Guests(
        writers=[KafkaProducerClient(cluster.kafka_client(PRODUCER), random.Random(f"{seed}-kafka"))],
        readers=[KafkaConsumerClient(cluster.kafka_client(CONSUMER))],
        watchers=[CertificateWatcher(cluster), Strangers(strangers_of(cluster))],
    )
    partition_workload.run_for(cluster, duration_s, seed, only, guests)
