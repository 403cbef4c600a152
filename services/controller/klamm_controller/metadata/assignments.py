"""Checks the replicas that an operator chose for new partitions. They are never changed."""

from __future__ import annotations

from collections.abc import Iterable

from klamm.errors import ErrorCode
from klamm.wire.v1.controller_pb2 import ReplicaAssignment
from klamm_controller.metadata.decision import Refusal
from klamm_controller.metadata.electorate import is_active
from klamm_server.metadata.entities import BrokerImage
from klamm_server.metadata.image import MetadataImage


def chosen_replicas(
    topic: str,
    assignments: Iterable[ReplicaAssignment],
    image: MetadataImage,
    *,
    first_partition: int,
    replication_factor: int | None,
) -> list[tuple[int, ...]]:
    """Returns the chosen replicas of the partitions from `first_partition` on.

    All partitions must have `replication_factor` replicas, or, if it is None, as many as the first one. Raises
    Refusal(INVALID_REPLICA_ASSIGNMENT)."""
    by_partition = {assignment.partition: tuple(assignment.broker_ids) for assignment in assignments}
    numbers = sorted(assignment.partition for assignment in assignments)
    expected = list(range(first_partition, first_partition + len(numbers)))
    if numbers != expected:
        raise _invalid(topic, f"partitions {numbers} are assigned, expected {expected}")
    chosen = [by_partition[number] for number in numbers]
    size = len(chosen[0]) if replication_factor is None else replication_factor
    for number, replicas in zip(numbers, chosen, strict=True):
        _check(f"partition {number}", topic, replicas, size, image)
    return chosen


def _check(partition: str, topic: str, replicas: tuple[int, ...], size: int, image: MetadataImage) -> None:
    if not replicas:
        raise _invalid(topic, f"{partition} has no replicas")
    if len(set(replicas)) != len(replicas):
        raise _invalid(topic, f"{partition} names a broker twice: {list(replicas)}")
    if len(replicas) != size:
        raise _invalid(topic, f"{partition} has {len(replicas)} replicas, expected {size}")
    brokers: list[BrokerImage | None] = [image.brokers.get(replica) for replica in replicas]
    if None in brokers:
        raise _invalid(topic, f"{partition} names broker {replicas[brokers.index(None)]}, which is not registered")
    if not any(map(is_active, brokers)):
        raise _invalid(topic, f"{partition} is only on brokers that are fenced or shutting down: {list(replicas)}")


def _invalid(topic: str, problem: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"topic {topic}: {problem}")
