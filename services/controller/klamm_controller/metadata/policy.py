"""The cluster's settings for new topics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from klamm.errors import ErrorCode
from klamm_controller.metadata.decision import Refusal

DEFAULT = -1
"""The number that stands for the cluster's default in a request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InternalTopicPolicy:
    """The number of partitions and replicas of one internal topic."""

    partition_count: int
    replication_factor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPolicy:
    """The defaults and limits for topics, from the controller's own configuration."""

    num_partitions: int
    default_replication_factor: int
    partitions_per_request_max: int
    delete_topic_enable: bool
    internal_topics: Mapping[str, InternalTopicPolicy]

    def partition_count(self, name: str, requested: int) -> int:
        """Returns the number of partitions that topic `name` gets."""
        if name in self.internal_topics:
            return self.internal_topics[name].partition_count
        if requested != DEFAULT:
            return requested
        return self.num_partitions

    def replication_factor(self, name: str, requested: int) -> int:
        """Returns the number of replicas that each partition of topic `name` gets."""
        if requested != DEFAULT:
            return requested
        if name in self.internal_topics:
            return self.internal_topics[name].replication_factor
        return self.default_replication_factor


def check_budget(name: str, partition_count: int, budget: int, policy: TopicPolicy) -> None:
    """Raises Refusal if the topic's new partitions exceed `budget`, the number that the request may still create (like
    KIP-599)."""
    if partition_count > budget:
        raise Refusal(
            ErrorCode.POLICY_VIOLATION,
            f"the request exceeds its limit at topic {name} with {partition_count} new partitions:"
            f" controller.partitions.per.request.max = {policy.partitions_per_request_max}",
        )
