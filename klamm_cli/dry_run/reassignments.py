"""The errors with which the controller would refuse to move partitions, or to cancel that
(`klamm_controller.metadata.reassignment`)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from klamm.errors import BrokerError, ErrorCode
from klamm.model import TopicPartition

if TYPE_CHECKING:
    from klamm.admin import PartitionDescription


def reassignment_errors(
    plan: Mapping[TopicPartition, tuple[int, ...]], brokers: Collection[int]
) -> Iterator[BrokerError]:
    """Yields the error of each partition that cannot move to its brokers. `brokers` are registered."""
    refused = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    for tp, replicas in plan.items():
        if not replicas or len(set(replicas)) != len(replicas):
            yield refused.exception(
                f"partition {tp} cannot be on brokers {list(replicas)}: expected at least one broker, each once"
            )
        elif unknown := [replica for replica in replicas if replica not in brokers]:
            yield refused.exception(f"partition {tp} cannot be on broker {unknown[0]}: it is not registered")


def cancellation_errors(
    partitions: Iterable[TopicPartition], known: Mapping[TopicPartition, PartitionDescription]
) -> Iterator[BrokerError]:
    """Yields the error of each partition whose move cannot be cancelled. `known` are the partitions that exist."""
    for tp in partitions:
        found = known.get(tp)
        if found is None:
            yield ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.exception(f"partition {tp} does not exist")
        elif not (found.adding_replicas or found.removing_replicas):
            yield ErrorCode.NO_REASSIGNMENT_IN_PROGRESS.exception(f"partition {tp} is not being reassigned")
        elif (having := (*found.isr, *found.elr) or found.last_known_elr) and set(having) <= set(found.adding_replicas):
            yield ErrorCode.INVALID_REPLICA_ASSIGNMENT.exception(
                f"partition {tp}: only the added replicas {list(having)} have every record, so the partition would need"
                " an unclean election without them"
            )
