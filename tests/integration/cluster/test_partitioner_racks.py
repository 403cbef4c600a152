"""A partitioner that chooses by the racks of the leaders, in a cluster whose brokers have racks."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import Any

from klamm import NewTopic, Producer
from klamm.producer import Partitioner, PartitionInfo
from tests.support.broker_cluster import broker_cluster, describe
from tests.support.waiting import patience, wait_until


class ToRack(Partitioner):
    """Sends a record to a leader in the rack that its key names."""

    def partition(self, topic: str, key: Any, value: Any, partitions: Sequence[PartitionInfo]) -> int | None:
        return next((each.partition for each in partitions if each.leader_rack == key), None)


def test_records_go_to_the_leader_in_their_rack_also_after_its_broker_died(tmp_path: pathlib.Path) -> None:
    with broker_cluster(tmp_path, brokers=3) as cluster, cluster.admin() as admin:
        placed = {0: [1, 2], 1: [2, 3], 2: [3, 2]}
        admin.create_topics([NewTopic("orders", assignments=placed)])

        with Producer(
            bootstrap_servers=cluster.bootstrap,
            partitioner_class=ToRack(),
            key_serializer="string",
            metadata_max_age_ms=500,
        ) as producer:

            def partition_of(rack: str) -> int:
                return producer.send("orders", b"v", rack).result(patience()).partition

            assert [partition_of(f"rack-{number}") for number in (1, 2, 3)] == [0, 1, 2]
            cluster.kill(1)
            wait_until(lambda: describe(admin, "orders").partitions[0].leader == 2, cluster.logs)
            wait_until(lambda: partition_of("rack-2") == 0, cluster.logs)
