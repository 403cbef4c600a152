"""The facts about a healthy cluster of three brokers, which tests change to make problems."""

from __future__ import annotations

import uuid
from typing import Any

from klamm.admin.types import (
    ClusterDescription,
    LogDirDescription,
    PartitionDescription,
    QuorumDescription,
    QuorumReplicaKind,
    ReplicaOfQuorum,
    ServerDescription,
    TopicDescription,
)
from klamm_cli.status.facts import ClusterFacts


def server(node_id: int, **changes: Any) -> ServerDescription:
    values: dict[str, Any] = {
        "node_id": node_id,
        "host": "h",
        "port": 9000 + node_id,
        "rack": "",
        "fenced": False,
        **changes,
    }
    return ServerDescription(**values)


def partition(
    number: int,
    leader: int = 1,
    replicas: tuple[int, ...] = (1, 2, 3),
    isr: tuple[int, ...] = (1, 2, 3),
    **changes: Any,
) -> PartitionDescription:
    return PartitionDescription(
        partition=number, leader=leader, leader_epoch=0, partition_epoch=0, replicas=replicas, isr=isr, **changes
    )


def topic(name: str, *partitions: PartitionDescription, internal: bool = False) -> TopicDescription:
    return TopicDescription(name=name, topic_id=uuid.UUID(int=1), internal=internal, partitions=partitions)


def controller(node_id: int, **changes: Any) -> ReplicaOfQuorum:
    values: dict[str, Any] = {
        "lag": 0,
        "silent_ms": 10,
        "is_voter": True,
        "kind": QuorumReplicaKind.CONTROLLER,
        **changes,
    }
    return ReplicaOfQuorum(node_id=node_id, host="h", port=9000 + node_id, end_index=50, **values)


def quorum(*replicas: ReplicaOfQuorum) -> QuorumDescription:
    return QuorumDescription(leader_id=1, term=3, high_watermark=50, replicas=replicas)


def log_dir(path: str = "/data", *, online: bool = True, total: int = 1_000, usable: int = 500) -> LogDirDescription:
    return LogDirDescription(path=path, online=online, total_bytes=total, usable_bytes=usable, replicas=())


HEALTHY = ClusterFacts(
    cluster=ClusterDescription(
        cluster_id="the-id",
        controller_id=1,
        controllers=(server(1), server(2)),
        brokers=(server(1), server(2), server(3)),
        coordinators=(server(1),),
        metadata_end_index=9,
    ),
    quorum=quorum(controller(1), controller(2)),
    topics={"orders": topic("orders", partition(0), partition(1, leader=2))},
    min_isr={"orders": 2},
    log_dirs={1: (log_dir(),)},
    groups=(),
    open_transactions=(),
    hanging=(),
)
