"""What `gather` learned of a cluster, for `problems` and `screen`. Values only."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLag:
    """How far a group is behind, over all partitions it has committed an offset of."""

    group_id: str
    type: str
    state: str
    lag: int
    """The records that the group has still to read."""
    partitions: int
    lost: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The records that were deleted before the group read them, by partition. Other partitions are left out."""

    @property
    def lost_count(self) -> int:
        """The records that the group has lost in all partitions."""
        return sum(self.lost.values())


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
    """Parts that could not be learned are None (or empty), and in `unknown` with the reason."""

    cluster: ClusterDescription
    quorum: QuorumDescription | None = None
    topics: Mapping[str, TopicDescription] | None = None
    min_isr: Mapping[str, int] = field(default_factory=dict)
    """min.insync.replicas by topic."""
    unclean: Sequence[str] = ()
    """Topics with unclean.leader.election.enable."""
    log_dirs: Mapping[int, Sequence[LogDirDescription]] = field(default_factory=dict)
    """The log directories of each broker that told them, by broker id."""
    damaged: Mapping[int, Sequence[ScrubDescription]] = field(default_factory=dict)
    """The replicas with damaged segments, by broker."""
    groups: Sequence[GroupLag] | None = None
    """The groups, those that lost records first, then those with the most lag."""
    groups_left_out: int = 0
    """Groups that were not looked at, for there are too many."""
    open_transactions: Sequence[OpenTransaction] | None = None
    """The oldest first."""
    hanging: Sequence[HangingTransaction] | None = None
    """The hanging transactions, or None if they were not searched for."""
    unknown: Mapping[str, str] = field(default_factory=dict)

    def partitions(self) -> list[tuple[TopicPartition, PartitionDescription]]:
        """The partitions of all topics, by name and number, those of internal topics last."""
        return [
            (TopicPartition(name, each.partition), each)
            for name, topic in sorted((self.topics or {}).items(), key=lambda item: (item[1].internal, item[0]))
            for each in topic.partitions
        ]

    def offline(self) -> list[TopicPartition]:
        """Partitions without a leader."""
        return [tp for tp, each in self.partitions() if each.leader < 0]

    def under_replicated(self) -> list[TopicPartition]:
        """Partitions with fewer replicas in sync than they should have."""
        return [tp for tp, each in self.partitions() if each.is_under_replicated]

    def led_by_resigned(self) -> list[TopicPartition]:
        """Partitions whose leader can take no records, with nobody in sync to take over."""
        return [tp for tp, each in self.partitions() if each.leader in each.resigned_replicas]

    def resigned(self) -> dict[int, int]:
        """How many replicas have resigned, by broker."""
        return dict(sorted(Counter(one for _, each in self.partitions() for one in each.resigned_replicas).items()))

    def under_min_isr(self) -> list[TopicPartition]:
        """Partitions that take no records with acks=all."""
        return [tp for tp, each in self.partitions() if len(each.isr) < self.min_isr.get(tp.topic, 1)]
