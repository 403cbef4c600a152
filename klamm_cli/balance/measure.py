"""Measures the load of all partitions, by the counters that brokers tell with their log directories."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from klamm.model import TopicPartition
from klamm_cli.balance.load import PartitionLoad
from klamm_cli.status.copies import Replicas, current_replicas

if TYPE_CHECKING:
    from klamm import Admin
    from klamm.admin import TopicDescription


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCluster:
    """The load of a cluster's partitions, and its brokers."""

    partitions: Mapping[TopicPartition, PartitionLoad]
    racks: Mapping[int, str]
    """The failure domain of each registered broker."""
    targets: frozenset[int]
    """The brokers that are live and not about to stop."""


def measure(admin: Admin, seconds: float) -> MeasuredCluster:
    """Measures the load over a time, and returns it with the brokers."""
    before, began_s = current_replicas(admin.describe_log_dirs()), time.monotonic()
    time.sleep(seconds)
    after, took_s = current_replicas(admin.describe_log_dirs()), time.monotonic() - began_s
    brokers = admin.describe_cluster().brokers
    return MeasuredCluster(
        partitions=partition_loads(admin.list_topics(include_internal=True), before, after, took_s=took_s),
        racks={broker.node_id: broker.rack for broker in brokers},
        targets=frozenset(
            broker.node_id for broker in brokers if not broker.fenced and not broker.in_controlled_shutdown
        ),
    )


def partition_loads(
    topics: Mapping[str, TopicDescription], before: Replicas, after: Replicas, *, took_s: float
) -> dict[TopicPartition, PartitionLoad]:
    """Returns the load of each partition from the counters of its replicas at two times. Partitions count at the
    brokers to which they are being moved."""
    in_bytes: dict[TopicPartition, int] = {}
    out_bytes: dict[TopicPartition, int] = {}
    size_bytes: dict[TopicPartition, int] = {}
    for (broker_id, tp), now in after.items():
        then = before.get((broker_id, tp))
        # A replica that was opened between the two times, or again, counts from 0.
        base_in, base_out = (0, 0) if then is None or then.in_bytes > now.in_bytes else (then.in_bytes, then.out_bytes)
        in_bytes[tp] = in_bytes.get(tp, 0) + now.in_bytes - base_in
        out_bytes[tp] = out_bytes.get(tp, 0) + max(0, now.out_bytes - base_out)
        size_bytes[tp] = max(size_bytes.get(tp, 0), now.size_bytes)
    return {
        tp: PartitionLoad(
            replicas=tuple(partition.target_replicas),
            in_bytes=in_bytes.get(tp, 0) / took_s,
            out_bytes=out_bytes.get(tp, 0) / took_s,
            size_bytes=size_bytes.get(tp, 0),
        )
        for name, topic in topics.items()
        for partition in topic.partitions
        for tp in [TopicPartition(name, partition.partition)]
    }
