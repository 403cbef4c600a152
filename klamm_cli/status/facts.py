"""The facts about a cluster that `gather` collects for `problems` and `screen`. Values only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from klamm.admin.types import (
    ClusterDescription,
    HangingTransaction,
    LogDirDescription,
    PartitionDescription,
    QuorumDescription,
    ScrubDescription,
    TopicDescription,
)
from klamm.model import TopicPartition
from klamm_cli.status.group_lag import GroupLag


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """An open transaction that its coordinator knows of."""

    transactional_id: str
    state: str
    open_ms: int
    timeout_ms: int
    is_prepared: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """All facts about a cluster. A part that could not be read is None or empty, and `unknown` has the reason."""

    cluster: ClusterDescription
    quorum: QuorumDescription | None = None
    topics: Mapping[str, TopicDescription] | None = None
    min_isr: Mapping[str, int] = field(default_factory=dict)
    """min.insync.replicas by topic."""
    unclean: Sequence[str] = ()
    """Topics with unclean.leader.election.enable."""
    log_dirs: Mapping[int, Sequence[LogDirDescription]] = field(default_factory=dict)
    """The log directories of each broker that answered, by broker id."""
    damaged: Mapping[int, Sequence[ScrubDescription]] = field(default_factory=dict)
    """The replicas with damaged segments, by broker."""
    groups: Sequence[GroupLag] | None = None
    """The groups. Groups that lost records come first, then groups with the most lag."""
    groups_left_out: int = 0
    """The number of groups that were not checked, because there are too many."""
    open_transactions: Sequence[OpenTransaction] | None = None
    """The open transactions, the oldest first."""
    hanging: Sequence[HangingTransaction] | None = None
    """The hanging transactions, or None if they were not searched for."""
    unknown: Mapping[str, str] = field(default_factory=dict)

    def partitions(self) -> list[tuple[TopicPartition, PartitionDescription]]:
        """Returns the partitions of all topics in the order of their names and numbers. The partitions of internal
        topics come last."""
        return [
            (TopicPartition(name, partition.partition), partition)
            for name, topic in sorted((self.topics or {}).items(), key=lambda item: (item[1].internal, item[0]))
            for partition in topic.partitions
        ]

    def offline(self) -> list[TopicPartition]:
        """Returns the partitions without a leader."""
        return [tp for tp, partition in self.partitions() if partition.leader < 0]

    def under_replicated(self) -> list[TopicPartition]:
        """Returns the partitions with a replica that is not in sync."""
        return [tp for tp, partition in self.partitions() if partition.is_under_replicated]

    def led_by_resigned(self) -> list[TopicPartition]:
        """Returns the partitions whose leader has resigned and rejects records, while no other in-sync replica can
        lead."""
        return [tp for tp, partition in self.partitions() if partition.leader in partition.resigned_replicas]

    def resigned(self) -> dict[int, int]:
        """Returns the number of replicas that have resigned, by broker id."""
        return dict(
            sorted(
                Counter(
                    resigned_replica
                    for _, partition in self.partitions()
                    for resigned_replica in partition.resigned_replicas
                ).items()
            )
        )

    def under_min_isr(self) -> list[TopicPartition]:
        """Returns the partitions that reject records with acks=all, because fewer replicas are in sync than
        min.insync.replicas."""
        return [tp for tp, partition in self.partitions() if len(partition.isr) < self.min_isr.get(tp.topic, 1)]
